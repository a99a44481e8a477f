//! How long clients of nginx wait: with the printed configuration, without it, and with nginx's own limit.

use std::{
    env,
    net::{SocketAddr, TcpStream},
    path::Path,
};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::{
    command::binary,
    http::{exchange, request},
    sandbox::{Namespace, Sandbox},
};
use limiter_userspace::output::table::{Cell, Column, Table};

use super::{
    super::{sample::median, tables::lines},
    http,
    load::{Connection, drive},
    server::{Folder, HTTP, Server},
    turns::TURN,
};

/// Where the printed configuration answers.
pub(super) const PORT: u16 = 8_080;
/// The ways to the service: a name and the port of the proxy. The first one is that of the printed configuration.
const WAYS: [(&str, u16); 3] =
    [("auth_request, the bridge", PORT), ("no limit", 8_081), ("limit_req", 8_082)];

/// The service, the ways to it without the bridge, and the printed configuration.
const CONFIGURATION: &str = "daemon off;
user root;
worker_processes 1;
pid FOLDER/nginx.pid;
error_log FOLDER/error.log;
events {}
http {
    access_log off;
    client_body_temp_path FOLDER/client_body;
    proxy_temp_path FOLDER/proxy;
    fastcgi_temp_path FOLDER/fastcgi;
    uwsgi_temp_path FOLDER/uwsgi;
    scgi_temp_path FOLDER/scgi;
    keepalive_requests 10000000;
    limit_req_zone $binary_remote_addr zone=sources:10m rate=1000000r/s;
    server {
        listen 127.0.0.1:8000;
        location / { return 200 page; }
    }
    server {
        listen 127.0.0.1:8081;
        location / { proxy_pass http://127.0.0.1:8000; }
    }
    server {
        listen 127.0.0.1:8082;
        location / {
            limit_req zone=sources burst=1000 nodelay;
            proxy_pass http://127.0.0.1:8000;
        }
    }
    include FOLDER/limiter.conf;
}
";

/// Microseconds that half of the requests and 99 % of them took, by way.
pub(super) struct Waits([[f64; 2]; WAYS.len()]);

/// Starts nginx.
pub(super) fn start(sandbox: &Sandbox, network: &Namespace, folder: &Folder) -> Result<Server> {
    let up = sandbox.command(network, "ip").args(["link", "set", "lo", "up"]).status();
    ensure!(up.context("cannot run ip")?.success(), "cannot set the loopback interface up");
    let mut printed = sandbox.command(network, binary()?);
    printed.args(["bridge", "config", "nginx", "--policy"]).arg(folder.path("policy.yaml"));
    printed.arg("--listen").arg(format!("unix:{}", folder.path(HTTP).display()));
    let printed = printed.output().context("cannot run limiter")?;
    ensure!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    folder.write("limiter.conf", &String::from_utf8(printed.stdout)?)?;
    let at = folder.path("").display().to_string();
    let main = CONFIGURATION.replace("FOLDER", at.trim_end_matches('/'));
    folder.write("nginx.conf", &main)?;
    let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/nginx/usr/sbin");
    let program = env::var_os("LIMITER_NGINX").map_or(unpacked, Into::into).join("nginx");
    ensure!(program.exists(), "there is no {}: run `cargo xtask setup`", program.display());
    let mut command = sandbox.command(network, program);
    command.arg("-e").arg(folder.path("error.log")).arg("-c").arg(folder.path("nginx.conf"));
    let ready = || WAYS.iter().all(|(_, port)| connect(network, *port).is_ok());
    let server = Server::start(&mut command, ready)?;
    let mut stream = connect(network, WAYS[0].1)?;
    stream.set_nonblocking(false)?;
    // Without the bridge, requests pass, too.
    let reply = exchange(&mut stream, request("GET /page", &[]))?;
    ensure!(reply.field("ratelimit").is_some(), "nginx did not ask the bridge: {reply:?}");
    Ok(server)
}

fn connect(network: &Namespace, port: u16) -> Result<TcpStream> {
    let stream =
        network.inside(|| TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))))??;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// Measures each way so many turns, one after the other.
pub(super) async fn measure(network: &Namespace, turns: usize) -> Result<Waits> {
    let mut seen = [const { [const { Vec::new() }; 2] }; WAYS.len()];
    for _ in 0..turns {
        for (figures, (_, port)) in seen.iter_mut().zip(WAYS) {
            let stream = tokio::net::TcpStream::from_std(connect(network, port)?)?;
            let (write, read) = (http::page as fn(_, &mut _) -> _, http::answer as fn(&_) -> _);
            let mut clients = vec![Connection { stream, write, read, buffer: Vec::new() }];
            // The first requests connect nginx with the bridge.
            drive(&mut clients, TURN / 4, None).await?;
            let turn = drive(&mut clients, TURN, None).await?;
            for (all, share) in figures.iter_mut().zip([0.5, 0.99]) {
                all.push(turn.latency(share));
            }
        }
    }
    Ok(Waits(seen.map(|figures| figures.map(|all| median(&all)))))
}

impl Waits {
    /// Microseconds that the bridge adds to no limit; NaN if other work on the machine hides it.
    pub(super) fn added(&self) -> [f64; 2] {
        let [bridge, none, _] = self.0;
        [0, 1].map(|at| Some(bridge[at] - none[at]).filter(|it| *it > 0.0).unwrap_or(f64::NAN))
    }

    /// The report as text.
    pub(super) fn text(&self) -> String {
        let [_, none, _] = self.0;
        let mut table = Table::new([
            Column::left("nginx before a service"),
            Column::right("p50 µs"),
            Column::right("p99 µs"),
            Column::right("p50 added"),
            Column::right("p99 added"),
        ]);
        for ((name, _), [p50, p99]) in WAYS.into_iter().zip(self.0) {
            table.row([
                Cell::from(name),
                format!("{p50:.0}").into(),
                format!("{p99:.0}").into(),
                format!("{:.0}", p50 - none[0]).into(),
                format!("{:.0}", p99 - none[1]).into(),
            ]);
        }
        lines(&table) + "\n" + NOTES
    }
}

const NOTES: &str = "\
A client on one connection, which asks again after each answer, in turns of 100 ms of the three ways. nginx, its
service and the bridge share one CPU.";
