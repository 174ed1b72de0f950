//! A decider that dies between any two of its commands to Redis leaves nothing behind that would stay
//! for ever.

use std::net::TcpListener as StdListener;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::harness::{
    Stack, eventually,
    files::policy,
    ms,
    stack::{LIMIT, Process, program},
};

/// Far more commands than a decider sends for what it is asked here.
const COMMANDS_MAX: usize = 60;
const ASKS: usize = 7;
const ASK_LIMIT: std::time::Duration = ms(1_000);

/// Lets so many commands through, on all connections together; then nothing any more.
struct Cut {
    address: String,
    passed: watch::Sender<usize>,
}

impl Cut {
    async fn after(commands: usize, redis: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let (passed, _) = watch::channel(0);
        let (counter, redis) = (passed.clone(), redis.to_owned());
        tokio::spawn(async move {
            while let Ok((decider, _)) = listener.accept().await {
                let (counter, redis) = (counter.clone(), redis.clone());
                tokio::spawn(async move { carry(decider, &redis, &counter, commands).await });
            }
        });
        Self { address, passed }
    }

    fn passed(&self) -> usize {
        *self.passed.borrow()
    }
}

async fn carry(
    mut decider: TcpStream,
    redis: &str,
    passed: &watch::Sender<usize>,
    most: usize,
) -> Option<()> {
    let mut redis = TcpStream::connect(redis).await.ok()?;
    let mut cut = passed.subscribe();
    let (mut asked, mut piece, mut answer) = (Vec::new(), vec![0; 65_536], vec![0; 65_536]);
    loop {
        tokio::select! {
            changed = cut.changed() => {
                changed.ok()?;
                if *passed.borrow() >= most {
                    // Redis has the last one already, or reads it before it sees the end.
                    return Some(());
                }
            }
            read = decider.read(&mut piece) => {
                let n = read.ok().filter(|n| *n > 0)?;
                asked.extend_from_slice(&piece[..n]);
                while let Some(end) = command_end(&asked) {
                    if *passed.borrow() >= most {
                        return None;
                    }
                    redis.write_all(&asked[..end]).await.ok()?;
                    asked.drain(..end);
                    passed.send_modify(|passed| *passed += 1);
                }
            }
            read = redis.read(&mut answer) => {
                let n = read.ok().filter(|n| *n > 0)?;
                decider.write_all(&answer[..n]).await.ok()?;
            }
        }
    }
}

/// Where the first command ends, if all of it is there: an array of texts, each with its length.
fn command_end(bytes: &[u8]) -> Option<usize> {
    let number = |at: usize, mark: u8| {
        let line = bytes.get(at..)?;
        let end = line.windows(2).position(|two| two == b"\r\n")?;
        assert_eq!(line[0], mark, "a command is an array of texts");
        let number: usize = std::str::from_utf8(&line[1..end]).ok()?.parse().ok()?;
        Some((number, at + end + 2))
    };
    let (words, mut at) = number(0, b'*')?;
    for _ in 0..words {
        let (length, text) = number(at, b'$')?;
        at = text + length + 2;
    }
    (at <= bytes.len()).then_some(at)
}

/// One command to Redis; what it answers as text.
async fn redis(address: &str, words: &[&str]) -> String {
    let mut text = format!("*{}\r\n", words.len());
    for word in words {
        text.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    let mut connection = TcpStream::connect(address).await.expect("Redis listens");
    connection.write_all(text.as_bytes()).await.expect("Redis reads");
    let mut answer = vec![0; 65_536];
    let n = connection.read(&mut answer).await.expect("Redis answers");
    String::from_utf8_lossy(&answer[..n]).into_owned()
}

/// How many keys there are, and the names of those that would stay.
async fn keys(address: &str) -> (usize, Vec<String>) {
    const SCRIPT: &str = "local keys = redis.call('KEYS', '*')
        local stay = {#keys}
        for _, key in ipairs(keys) do
            if redis.call('PTTL', key) < 0 then stay[#stay + 1] = key end
        end
        return table.concat(stay, ' ')";
    let answer = redis(address, &["EVAL", SCRIPT, "0"]).await;
    let text = answer.lines().nth(1).unwrap_or_else(|| panic!("{answer}"));
    let mut words = text.split(' ');
    let count = words.next().and_then(|count| count.parse().ok());
    (count.unwrap_or_else(|| panic!("{answer}")), words.map(str::to_owned).collect())
}

/// Everything that a gateway asks, each kind twice: the second meets what the first has stored.
async fn ask_everything(stack: &Stack, decider: &str) -> Vec<bool> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock that is set");
    let deadline = (now + ms(30_000)).as_micros() as u64;
    let wants = json!([{ "class": "otp", "n": 2 }, { "class": "marketing", "n": 1 }]);
    let ask = |leaves: bool| {
        let mut ask = json!({ "limit": LIMIT, "policy": "", "gateway": "test", "wants": wants });
        // With a deadline it renews a lease, or gives it back.
        ask["deadline_us"] = json!(deadline);
        ask["leaves"] = json!(leaves);
        ask
    };
    let throttled = |id| json!({ "limit": LIMIT, "pause_us": 2_000_000, "id": id });
    let asks: [(&str, Value); ASKS] = [
        ("/v1/decide", ask(false)),
        ("/v1/decide", ask(false)),
        ("/v1/throttled", throttled("one")),
        ("/v1/throttled", throttled("two")),
        ("/v1/throttled", throttled("one")),
        ("/v1/decide", ask(false)),
        ("/v1/decide", ask(true)),
    ];
    let mut answered = Vec::new();
    for (path, body) in asks {
        let answer = stack.client.post(decider, path, body.to_string(), ASK_LIMIT).await;
        answered.push(answer.is_ok());
    }
    answered
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_between_any_two_store_commands_leaves_no_key_without_expiry() {
    let stack = Stack::up(&["--redis", "--gateways", "1"]);
    let url = stack.ready.redis.clone().expect("a stack with Redis");
    let address = url.strip_prefix("redis://").expect("an address");
    let policy = policy(|policy| {
        policy["limits"][0]["fallback"] = json!({ "lease": "600ms", "forget_after": "1m" });
    });
    let mut most_keys = 0;
    for commands in 1..=COMMANDS_MAX {
        redis(address, &["FLUSHALL"]).await;
        redis(address, &["SCRIPT", "FLUSH"]).await;
        let cut = Cut::after(commands, address).await;
        let port = StdListener::bind("127.0.0.1:0").and_then(|l| l.local_addr());
        let decider = port.expect("a free port").to_string();
        let mut command = Command::new(program("weir"));
        command.arg("serve").arg("--policy").arg(&policy).args(["--listen", &decider]);
        command.args(["--store", &format!("redis://{}/0", cut.address)]);
        let process = Process::spawn("weir", command);
        eventually(ms(5_000), "the decider has its store, or lost it again", async || {
            let is_cut = cut.passed() >= commands;
            let is_ready = stack.client.get(&decider, "/readyz", ASK_LIMIT).await.is_ok();
            (is_cut || is_ready).then_some(())
        })
        .await;
        let answered = ask_everything(&stack, &decider).await;
        process.signal(libc::SIGKILL);
        let (count, stay) = keys(address).await;
        assert_eq!(stay, Vec::<String>::new(), "stay after {commands} commands");
        most_keys = most_keys.max(count);
        if cut.passed() < commands {
            println!("{} commands in all, {count} keys", cut.passed());
            assert_eq!(answered, [true; ASKS], "a decider that nothing was cut off from");
            assert!(most_keys >= 2 && commands > 5, "{most_keys} keys, {commands} commands");
            return;
        }
    }
    panic!("more than {COMMANDS_MAX} commands: raise the bound");
}
