//! Tests of the web page in a browser.

use crate::{bench::select, http::Server, serve::with_index, webdriver::Browser};

const ENTER: &str = "\u{e007}";
const ESCAPE: &str = "\u{e00c}";
const RIGHT: &str = "\u{e014}";

/// Script that returns form fields and buttons without an accessible name.
const NAMELESS: &str = "return [...document.querySelectorAll('input, select, button, [tabindex=\"0\"]')]
    .filter((e) => !e.labels?.length && !e.getAttribute('aria-label') && !e.textContent.trim()).map((e) => e.outerHTML)";

/// Script that returns texts with a contrast below 4.5 to 1, the minimum of the Web Content Accessibility Guidelines.
const PALE: &str = "
    const light = (c) => c.map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, n) => sum + v * [0.2126, 0.7152, 0.0722][n], 0);
    const rgba = (text) => { const n = text.match(/[\\d.]+/g).map(Number); return [n.slice(0, 3), n[3] ?? 1]; };
    const behind = (e) => { for (; e; e = e.parentElement) {
        const [c, a] = rgba(getComputedStyle(e).backgroundColor); if (a > 0.99) return c; } };
    const opacity = (e) => e ? getComputedStyle(e).opacity * opacity(e.parentElement) : 1;
    const contrast = (e) => { const [back, o] = [behind(e), opacity(e)];
        const own = rgba(getComputedStyle(e).color)[0].map((v, n) => v * o + back[n] * (1 - o));
        const [a, b] = [light(own), light(back)].sort((x, y) => y - x); return (a + 0.05) / (b + 0.05); };
    const said = (e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    return [...document.querySelectorAll('body *')].filter((e) => said(e) && e.tagName !== 'OPTION' && e.checkVisibility())
        .map((e) => [contrast(e), e.tagName, e.className, e.textContent.slice(0, 30)]).filter(([c]) => c < 4.5)";

/// Checks that all form fields and buttons have a name, and that all texts have enough contrast.
#[track_caller]
fn is_accessible(browser: &Browser) {
    assert_eq!(browser.run(NAMELESS), serde_json::json!([]));
    assert_eq!(browser.run(PALE), serde_json::json!([]));
}

#[test]
fn the_page_searches_shows_dialogues_and_topics() {
    let Some(browser) = Browser::start() else { return };
    let t = with_index();
    let server = Server::start(&t, "-i x");
    browser.resize(1300, 900);
    browser.open(&format!("http://{}/", server.address));
    browser.until("document.getElementById('about').textContent.includes('280 dialogues, 3,208 turns')");
    browser.until("document.querySelectorAll('#facets .tag').length > 10");

    // Without a query, the page shows dialogues.
    browser
        .until("document.querySelectorAll('.hit').length === 10 && !document.getElementById('more').hidden");
    browser.click("#more");
    browser.until("document.querySelectorAll('.hit').length === 20");

    browser.keys("#query", &format!("where is my parcel{ENTER}"));
    browser.until("document.querySelectorAll('.hit').length === 10");
    browser.until("location.hash.includes('q=where+is+my+parcel')");
    browser.until("[...document.querySelectorAll('.hit mark')].some((m) => m.textContent === 'parcel')");
    browser.click("#more");
    browser.until("document.querySelectorAll('.hit').length === 20");

    // With the keyboard only, select the second hit, open its dialogue at this turn, and go back.
    browser.keys("#query", ESCAPE);
    browser.keys("body", "jj");
    browser.until("document.querySelectorAll('.hit')[1].classList.contains('here')");
    browser.keys(".hit.here", ENTER);
    browser.until("document.querySelector('#thread li.found[aria-current]')");
    let of_hit = "document.querySelectorAll('.hit')[1].dataset";
    browser.until(&format!("new URLSearchParams(location.hash.slice(1)).get('open') === {of_hit}.dialogue"));
    browser.until(&format!(
        "document.querySelector('#thread .found .who').textContent.startsWith({of_hit}.turn + '.')"
    ));
    browser.keys("#thread", ESCAPE);
    browser.until("document.getElementById('thread').hidden");
    browser.keys(".hit.here", "m");
    browser.until("document.getElementById('state').textContent.includes('similar to')");

    // A facet restricts the hits, and can be removed.
    browser.run("[...document.querySelectorAll('#facets .tag')].find((b) => b.textContent.startsWith('deliveries')).click()");
    browser.until("document.getElementById('filter').value === 'domain=deliveries'");
    browser.until("document.querySelector('#facets .tag[aria-pressed=true]')");
    browser.until(
        "[...document.querySelectorAll('.hit')].every((h) => h.querySelector('.tag').textContent === 'deliveries')",
    );
    browser.click("#facets .tag[aria-pressed=true]");
    browser.until("document.getElementById('filter').value === ''");

    // Add context turns, and show the explanation of a hit.
    browser.click("#before");
    browser.keys("#said input", "I have been waiting for two weeks");
    browser.run("document.getElementById('explain').click()");
    browser.keys("#query", &format!("is there a refund{ENTER}"));
    browser
        .until("location.hash.includes('said=I+have') && document.querySelectorAll('table.why').length > 0");
    is_accessible(&browser);

    // Replies to a turn, from the form and from the panel of a dialogue.
    browser.run("document.querySelector('#of').value = 'replies'; document.querySelector('#of').dispatchEvent(new Event('change'))");
    browser.until("document.getElementById('state').textContent.includes('10 replies in')");
    browser.until("document.getElementById('explain').closest('label').hidden");
    browser.until(
        "[...document.querySelectorAll('.hit')].every((h) => h.querySelectorAll('.turns li').length === 2)",
    );
    browser.until(
        "[...document.querySelectorAll('.hit .found')].some((reply) => reply.textContent.includes('(user)'))",
    );
    browser.run("document.querySelector('#role').value = 'agent'; document.querySelector('#role').dispatchEvent(new Event('change'))");
    browser.until("[...document.querySelectorAll('.hit .found')].every((reply) => reply.textContent.includes('(agent)'))");
    browser.keys("body", "j");
    browser.keys(".hit.here", ENTER);
    browser.until("document.querySelectorAll('#thread li').length > 2");
    browser.run("document.querySelectorAll('#thread [aria-label=\"Suggest replies to turn 3\"]')[0].click()");
    browser.until("new URLSearchParams(location.hash.slice(1)).getAll('said').length === 2");
    browser.until("document.getElementById('state').textContent.includes('replies in')");
    is_accessible(&browser);
    browser.keys("#thread", ESCAPE);
    browser.run("document.querySelector('#of').value = 'utterances'; document.querySelector('#of').dispatchEvent(new Event('change'))");
    browser.until("document.getElementById('state').textContent.includes('hits by meaning')");

    // On the map, every dialogue is a point, which can be selected and opened by keys.
    browser.click("#views [data-view=topics]");
    browser.until("document.querySelectorAll('#map circle').length === 280");
    browser.keys("#map", &format!("{RIGHT}{RIGHT}+"));
    browser
        .until("document.querySelector('#map circle.here') && document.querySelector('.map .about strong')");
    browser.keys("#map", ENTER);
    browser.until(
        "!document.getElementById('thread').hidden && document.querySelectorAll('#thread li').length > 2",
    );
    browser.keys(".topics .how input, #survey input", &format!("7{ENTER}"));
    browser.until("document.querySelectorAll('.topics .list > li').length === 7");
    is_accessible(&browser);

    browser.click("#views [data-view=stats]");
    browser.until("[...document.querySelectorAll('.card strong')].map((c) => c.textContent)[1] === '3,208'");
    is_accessible(&browser);

    // The benchmark report has its own style within the content security policy. Its links do not change the address.
    t.write("select.txt", select());
    t.ok("bench sr select.txt -r bm25 -r tfidf");
    browser.keys("body", "b");
    browser.until("document.querySelector('#survey > div')?.shadowRoot.querySelectorAll('table').length > 0");
    let report = "document.querySelector('#survey > div').shadowRoot";
    browser.until(&format!("{report}.textContent.includes('BM25')"));
    browser.until(&format!("getComputedStyle({report}.querySelector('td.n')).textAlign === 'right'"));
    assert_eq!(browser.console_errors(), Vec::<String>::new());
    std::fs::remove_dir_all(t.path("benchmark-results")).unwrap();
    browser.click("#views [data-view='']");
    browser.click("#views [data-view=benchmarks]");
    browser.until("document.getElementById('state').textContent.includes('no benchmark results yet')");

    // Test both color schemes, and check that nothing overflows at the width of a phone.
    let paper = "return getComputedStyle(document.body).backgroundColor";
    let before = browser.run(paper);
    browser.click("#theme");
    assert_ne!(browser.run(paper), before);
    browser.resize(500, 900);
    for view in ["benchmarks", "topics", "stats", ""] {
        browser.run(&format!("document.querySelector('#views [data-view=\"{view}\"]').click()"));
        browser.until(match view {
            "topics" => "document.querySelectorAll('#map circle').length === 280",
            "benchmarks" => "document.getElementById('hits').hidden",
            "stats" => "document.querySelectorAll('.card').length === 4",
            _ => "document.querySelectorAll('.hit').length === 10",
        });
        browser.until("document.documentElement.scrollWidth <= innerWidth");
        is_accessible(&browser);
    }

    // An error in the filter is shown at its field.
    browser.keys("#filter", &format!("domian=banking{ENTER}"));
    browser.until("document.getElementById('filter-wrong').textContent.includes('did you mean `domain`?')");
    // The page shows an error if the server is not running.
    assert_eq!(server.stop(), 0);
    browser
        .run("document.getElementById('filter').value = ''; document.getElementById('ask').requestSubmit()");
    browser
        .until("document.getElementById('filter-wrong').textContent.includes('the server does not respond')");
}

#[test]
fn the_page_asks_for_a_key_and_an_index() {
    let Some(browser) = Browser::start() else { return };
    let t = with_index();
    t.write("one.jsonl", "{\"id\": \"only-1\", \"turns\": [{\"text\": \"where is the harbour\"}]}\n");
    t.ok("ingest -i y one.jsonl --no-encode");
    t.write("keys.toml", "[[key]]\nname = \"all\"\nsecret = \"let-me-in-please\"\n");
    let server = Server::start(&t, "-i x --also y --keys keys.toml");
    browser.open(&format!("http://{}/ui/", server.address));
    browser.until("document.getElementById('enter').open");
    browser.keys("#key", &format!("let-me-in{ENTER}"));
    browser.until("document.getElementById('key-wrong').textContent === 'unknown API key'");
    assert_eq!(browser.run("return document.getElementById('key').value"), "");
    browser.keys("#key", &format!("let-me-in-please{ENTER}"));
    browser.until("document.querySelectorAll('.hit').length === 10");
    browser.until("document.getElementById('about').textContent.startsWith('x: 280')");
    browser.click("#views [data-view=stats]");
    browser.until("document.querySelectorAll('.card').length === 4");
    browser.click("#views [data-view='']");
    browser.run("const index = document.getElementById('index'); index.value = 'y'; index.dispatchEvent(new Event('change'))");
    browser.until("document.querySelectorAll('.hit').length === 1 && location.hash.includes('index=y')");
    browser.keys("#query", &format!("harbour{ENTER}"));
    browser.until("document.querySelector('.hit mark')?.textContent === 'harbour'");
}
