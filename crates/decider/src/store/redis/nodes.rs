//! One server, or the nodes of a cluster.
//!
//! Promise: a call goes to where its limit lives and never waits for a connection: without one it
//! fails at once, and only calls for limits of that node do. Nothing is sent twice: a call is sent on
//! only where a node refused it with MOVED or ASK.
//!
//! Why not the `redis` crate's cluster connection: it holds all calls while it asks for the slots and
//! tries to reach a node that is silent; it repeats a script whose answer was lost, which charges
//! twice; and with no node left it tries again without a pause. A limit is one key, so all that it
//! takes is to follow the redirections, which name the node; the connections, the errors and the
//! redirections' text are the crate's.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use ::redis::{
    Client, Cmd, ConnectionInfo, ErrorKind, FromRedisValue, Pipeline, RedisError, RedisFuture,
    RedisResult, ScriptInvocation, ServerErrorKind, Value,
    aio::{ConnectionLike, MultiplexedConnection},
};
use tokio::time::{Duration, sleep, timeout};

use super::{
    link::{Link, store_error},
    source::{Source, ping},
    target::{Kind, Target, sibling},
};
use crate::store::StoreError;

/// A slot that moves is announced by ASK, then MOVED; more than that is a cluster in disorder.
const HOPS_MAX: usize = 4;
/// Between two looks for limits that have no home.
const SETTLE: Duration = Duration::from_millis(200);
/// For one look.
const LOOK: Duration = Duration::from_millis(250);

pub(super) enum Nodes {
    One(Link),
    Cluster(Cluster),
}

pub(super) struct Cluster {
    shared: Arc<Shared>,
    settling: tokio::task::AbortHandle,
}

struct Shared {
    /// Whose login and certificates all nodes take.
    pattern: ConnectionInfo,
    /// The limits' keys.
    keys: Vec<String>,
    map: Mutex<Map>,
    /// Whom to ask next when nobody is known to be right.
    turn: AtomicUsize,
}

struct Map {
    nodes: Vec<Arc<Node>>,
    /// One per limit: the node that answered last.
    homes: Vec<Option<Arc<Node>>>,
}

struct Node {
    host: String,
    port: u16,
    /// Named in the URL: kept even if no limit lives there.
    is_seed: bool,
    link: Link,
}

/// Where to go instead.
enum Redirect {
    Moved(Arc<Node>),
    Ask(Arc<Node>),
}

/// What is sent to a limit's node.
enum Question<'a> {
    Script(&'a ScriptInvocation<'a>),
    /// Only to find out which node it is.
    Where(&'a str),
}

impl Nodes {
    /// `keys`: one per limit. Connects in the background; call within a tokio runtime.
    ///
    /// # Errors
    /// An address cannot be used.
    pub fn start(target: Target, keys: Vec<String>) -> RedisResult<Self> {
        Ok(match target.0 {
            Kind::One(client) => Self::One(Link::start(Source::One(*client))),
            Kind::Sentinels(clients) => Self::One(Link::start(Source::Sentinels(clients))),
            Kind::Cluster(seeds) => Self::Cluster(Cluster::start(&seeds, keys)?),
        })
    }

    pub async fn run<T: FromRedisValue>(
        &self,
        limit: usize,
        call: &ScriptInvocation<'_>,
    ) -> Result<T, StoreError> {
        let question = Question::Script(call);
        match self {
            Self::One(link) => {
                question.put(link, false).await?.map_err(|error| store_error(&error))
            }
            Self::Cluster(cluster) => cluster.shared.run(limit, &question).await,
        }
    }

    /// Does Redis answer? Of a cluster, one node: the limits of the others have their own fate.
    pub async fn ping(&self) -> Result<(), StoreError> {
        let node;
        let link = match self {
            Self::One(link) => link,
            Self::Cluster(cluster) => {
                node = cluster.shared.anyone()?;
                &node.link
            }
        };
        let mut lease = link.lease()?;
        let outcome = ping(lease.connection()).await;
        lease.end(&outcome);
        outcome.map_err(|error| store_error(&error))
    }
}

impl Question<'_> {
    async fn put<T: FromRedisValue>(
        &self,
        link: &Link,
        asking: bool,
    ) -> Result<RedisResult<T>, StoreError> {
        let mut lease = link.lease()?;
        let mut connection = MaybeAsking { asking, connection: lease.connection() };
        let outcome = match self {
            Self::Script(call) => {
                let outcome = call.invoke_async(&mut connection).await;
                // It was sent again already; it may have been flushed between the two. Nothing was
                // carried out, so once more is harmless.
                match outcome {
                    Err(error) if is_no_script(&error) => call.invoke_async(&mut connection).await,
                    outcome => outcome,
                }
            }
            Self::Where(key) => ::redis::cmd("EXISTS").arg(key).query_async(&mut connection).await,
        };
        lease.end(&outcome);
        Ok(outcome)
    }
}

fn is_no_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

impl Cluster {
    fn start(seeds: &[ConnectionInfo], keys: Vec<String>) -> RedisResult<Self> {
        let nodes: Vec<Arc<Node>> =
            seeds.iter().filter_map(Node::seed).collect::<Result<_, _>>()?;
        let Some(pattern) = seeds.first().cloned() else {
            return Err((ErrorKind::InvalidClientConfig, "no node").into());
        };
        let homes = vec![None; keys.len()];
        let map = Mutex::new(Map { nodes, homes });
        let shared = Arc::new(Shared { pattern, keys, map, turn: AtomicUsize::new(0) });
        let task = tokio::spawn(Arc::clone(&shared).settle());
        Ok(Self { shared, settling: task.abort_handle() })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.settling.abort();
    }
}

impl Node {
    fn seed(info: &ConnectionInfo) -> Option<RedisResult<Arc<Self>>> {
        use ::redis::ConnectionAddr::{Tcp, TcpTls};
        let (Tcp(host, port) | TcpTls { host, port, .. }) = info.addr() else {
            return None;
        };
        Some(Self::new(info.clone(), host.clone(), *port, true))
    }

    fn new(info: ConnectionInfo, host: String, port: u16, is_seed: bool) -> RedisResult<Arc<Self>> {
        let link = Link::start(Source::Node(Client::open(info)?));
        Ok(Arc::new(Self { host, port, is_seed, link }))
    }
}

impl Shared {
    async fn run<T: FromRedisValue>(
        &self,
        limit: usize,
        question: &Question<'_>,
    ) -> Result<T, StoreError> {
        let mut node = self.first(limit)?;
        let mut asking = false;
        for _ in 0..HOPS_MAX {
            let error = match question.put(&node.link, asking).await? {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            match self.redirect(&error, &node)? {
                Some(Redirect::Moved(to)) => {
                    self.with(|map| map.homes[limit] = Some(Arc::clone(&to)));
                    (node, asking) = (to, false);
                }
                Some(Redirect::Ask(to)) => (node, asking) = (to, true),
                None => {
                    if error.kind() == ErrorKind::Server(ServerErrorKind::ClusterDown) {
                        // Perhaps it is this node that is cut off.
                        self.with(|map| map.homes[limit] = None);
                    }
                    return Err(store_error(&error));
                }
            }
        }
        Err(StoreError::Refused(format!("sent on from node to node {HOPS_MAX} times")))
    }

    /// The limit's home if it can be reached, else someone who may know a new one.
    fn first(&self, limit: usize) -> Result<Arc<Node>, StoreError> {
        match self.with(|map| map.homes[limit].clone()) {
            Some(home) if home.link.is_up() => Ok(home),
            _ => self.anyone(),
        }
    }

    /// A node that can be reached, another each time.
    fn anyone(&self) -> Result<Arc<Node>, StoreError> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        self.with(|map| {
            let count = map.nodes.len();
            let mut nodes = (0..count).map(|i| &map.nodes[(turn % count + i) % count]);
            nodes.find(|node| node.link.is_up()).cloned()
        })
        .ok_or_else(|| StoreError::Unreachable("no node of the cluster answers".to_owned()))
    }

    fn redirect(&self, error: &RedisError, from: &Node) -> Result<Option<Redirect>, StoreError> {
        let Some((to, _slot)) = error.redirect_node() else {
            return Ok(None);
        };
        let bad = || StoreError::Refused(format!("sent on to `{to}`, which is no address"));
        let (host, port) = to.rsplit_once(':').ok_or_else(bad)?;
        // An empty one means: the host you came from.
        let host = if host.is_empty() { &from.host } else { host };
        let node = self.node(host, port.parse().map_err(|_| bad())?)?;
        let is_ask = error.kind() == ErrorKind::Server(ServerErrorKind::Ask);
        Ok(Some(if is_ask { Redirect::Ask(node) } else { Redirect::Moved(node) }))
    }

    fn node(&self, host: &str, port: u16) -> Result<Arc<Node>, StoreError> {
        self.with(|map| {
            if let Some(node) = map.nodes.iter().find(|node| node.port == port && node.host == host)
            {
                return Ok(Arc::clone(node));
            }
            // Their number is bounded: the URL's, one per limit, and the newest.
            let Map { nodes, homes } = map;
            nodes.retain(|node| {
                node.is_seed || homes.iter().flatten().any(|home| Arc::ptr_eq(home, node))
            });
            let info = sibling(&self.pattern, host.to_owned(), port);
            let node = Node::new(info, host.to_owned(), port, false)
                .map_err(|error| StoreError::Refused(error.to_string()))?;
            nodes.push(Arc::clone(&node));
            Ok(node)
        })
    }

    /// Looks for homes before anyone needs them, for ever. What goes wrong shows where it matters.
    async fn settle(self: Arc<Self>) {
        loop {
            for (limit, key) in self.keys.iter().enumerate() {
                let is_home = |node: &Arc<Node>| node.link.is_up();
                if !self.with(|map| map.homes[limit].as_ref().is_some_and(is_home)) {
                    let _ = timeout(LOOK, self.run::<bool>(limit, &Question::Where(key))).await;
                }
            }
            sleep(SETTLE).await;
        }
    }

    fn with<T>(&self, use_it: impl FnOnce(&mut Map) -> T) -> T {
        // Every change is complete in itself.
        use_it(&mut self.map.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A connection that says ASKING before each command, if need be: it holds for the next one only.
struct MaybeAsking<'a> {
    asking: bool,
    connection: &'a mut MultiplexedConnection,
}

impl ConnectionLike for MaybeAsking<'_> {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        if !self.asking {
            return self.connection.req_packed_command(command);
        }
        Box::pin(async move {
            let mut both = ::redis::pipe();
            both.cmd("ASKING").add_command(command.clone());
            let mut answers = self.connection.req_packed_commands(&both, 1, 1).await?;
            answers.pop().ok_or_else(|| (ErrorKind::UnexpectedReturnType, "no answer").into())
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        self.connection.req_packed_commands(pipeline, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.connection.get_db()
    }
}
