//! CPU time and memory of other processes, from Linux's `/proc`. Elsewhere there is none of it, and
//! the report says so.

/// User and system time of the whole process so far, in µs; `None` where there is no `/proc`.
pub fn time_us(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // SAFETY: sysconf only takes a number.
    let per_s = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok()?;
    (ticks(&text)? * 1_000_000).checked_div(per_s)
}

/// Memory that belongs to the process alone (no mapped files), in bytes.
pub fn anonymous_bytes(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// `utime + stime`, fields 14 and 15. The program's name, field 2, may hold spaces and brackets.
fn ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_system_time_are_added() {
        let stat = "123 (a) b (c) S 1 123 123 0 -1 4194560 1 2 3 4 70 30 5 6 20 0 9 0 1 1";
        assert_eq!(ticks(stat), Some(100));
        assert_eq!(ticks("123 (wrk"), None);
    }
}
