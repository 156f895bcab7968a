//! Web page: files that are part of the binary. It uses only the public API of this server.

/// File of the page.
pub(super) struct File {
    pub(super) name: &'static str,
    pub(super) kind: &'static str,
    pub(super) text: &'static str,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

pub(super) const FILES: [File; 14] = [
    File { name: "", kind: "text/html; charset=utf-8", text: include_str!("index.html") },
    File { name: "style.css", kind: "text/css; charset=utf-8", text: include_str!("style.css") },
    File { name: "icon.svg", kind: "image/svg+xml", text: include_str!("icon.svg") },
    File { name: "api.js", kind: SCRIPT, text: include_str!("api.js") },
    File { name: "docs.html", kind: "text/html; charset=utf-8", text: include_str!("docs.html") },
    File { name: "docs.js", kind: SCRIPT, text: include_str!("docs.js") },
    File { name: "dom.js", kind: SCRIPT, text: include_str!("dom.js") },
    File { name: "facets.js", kind: SCRIPT, text: include_str!("facets.js") },
    File { name: "hits.js", kind: SCRIPT, text: include_str!("hits.js") },
    File { name: "main.js", kind: SCRIPT, text: include_str!("main.js") },
    File { name: "report.js", kind: SCRIPT, text: include_str!("report.js") },
    File { name: "stats.js", kind: SCRIPT, text: include_str!("stats.js") },
    File { name: "thread.js", kind: SCRIPT, text: include_str!("thread.js") },
    File { name: "topics.js", kind: SCRIPT, text: include_str!("topics.js") },
];
