//! `weir serve`: the decider.
//!
//! Promise: it starts and stays up whether or not its store can be reached, and says so. Told to
//! end, it stops accepting, finishes what is in flight within the drain time, and exits 0.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};
use tracing::{info, warn};

use crate::{
    document,
    doors::Doors,
    http::{App, router},
    settings::{LogFormat, Options, Settings, StoreChoice},
    store::{Account, Store, accounts, memory::Memory, redis::Redis},
};

/// # Errors
/// Settings or policy are refused, or the address cannot be bound.
pub fn run(options: Options) -> anyhow::Result<()> {
    let settings = Settings::resolve(options)?;
    log_to_stderr(settings.log_format);
    let document =
        document::read(&settings.policy).with_context(|| settings.policy.display().to_string())?;
    let deadline = settings.deadline(&document.policy)?;
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?
        .block_on(serve(settings, document.policy, deadline))
}

async fn serve(
    settings: Settings,
    policy: limits::policy::Policy,
    deadline: Duration,
) -> anyhow::Result<()> {
    // Before anything is said: whoever has read it may send one.
    let told_to_end = told_to_end()?;
    let listener = TcpListener::bind(settings.listen)
        .await
        .with_context(|| format!("cannot listen on {}", settings.listen))?;
    let address = listener.local_addr().context("no local address")?;
    info!(
        listen = %address,
        store = %settings.store,
        ?deadline,
        policy = %settings.policy.display(),
        hash = policy.hash,
        limits = policy.limits.len(),
        "serving"
    );
    let store = open(settings.store, accounts(&policy))?;
    let app = Arc::new(App::new(policy, store, deadline));
    let listener = Doors::new(listener, settings.connections, app.connections());
    let (stopping, stopped) = oneshot::channel();
    let stop = async move {
        told_to_end.await;
        let _ = stopping.send(());
    };
    let serving = axum::serve(listener, router(app)).with_graceful_shutdown(stop);
    let drained = async {
        let _ = stopped.await;
        tokio::time::sleep(settings.drain).await;
    };
    tokio::select! {
        ended = serving.into_future() => ended.context("serving failed")?,
        () = drained => warn!(drain = ?settings.drain, "requests were still in flight"),
    }
    info!("ended");
    Ok(())
}

fn open(choice: StoreChoice, accounts: Vec<Account>) -> anyhow::Result<Option<Arc<dyn Store>>> {
    Ok(match choice {
        StoreChoice::Memory => Some(Arc::new(Memory::new(accounts))),
        StoreChoice::Redis { target, .. } => Some(Arc::new(Redis::new(*target, &accounts)?)),
        StoreChoice::Nothing => {
            warn!("store `none` grants everything; it is there to measure against");
            None
        }
    })
}

/// Listens for SIGTERM (a platform) and SIGINT (Ctrl-C); what it gives waits for the first of them.
fn told_to_end() -> anyhow::Result<impl Future<Output = ()>> {
    let listen = |kind| signal(kind).context("cannot listen for signals");
    let (mut terminate, mut interrupt) =
        (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => info!("SIGTERM: ending"),
            _ = interrupt.recv() => info!("SIGINT: ending"),
        }
    })
}

fn log_to_stderr(format: LogFormat) {
    use tracing_subscriber::{EnvFilter, fmt};
    let filter = EnvFilter::builder()
        .with_default_directive(tracing::Level::INFO.into())
        .with_env_var("WEIR_LOG")
        .from_env_lossy();
    let log = fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => {
            log.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).init()
        }
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
}
