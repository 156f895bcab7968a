//! Converts the markup of Slack messages to readable text: names for `<@U123>`, labels for links.

use super::names::Names;

/// Converts the text of a message.
pub(super) fn plain(text: &str, names: &Names) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        let (before, tag) = rest.split_at(start);
        unescape(before, &mut out);
        // A tag contains no `<`. An unclosed tag is plain text.
        match tag.get(1..).and_then(|inner| Some((inner, inner.find(['<', '>'])?))) {
            Some((inner, end)) if inner[end..].starts_with('>') => {
                unescape(&shown(&inner[..end], names), &mut out);
                rest = &inner[end + 1..];
            }
            _ => {
                out.push('<');
                rest = &tag[1..];
            }
        }
    }
    unescape(rest, &mut out);
    out
}

fn shown(tag: &str, names: &Names) -> String {
    let (target, label) = match tag.split_once('|') {
        Some((target, label)) => (target, Some(label).filter(|l| !l.is_empty())),
        None => (tag, None),
    };
    if let Some(user) = target.strip_prefix('@') {
        return format!("@{}", names.user(user).or(label).unwrap_or(user));
    }
    if let Some(channel) = target.strip_prefix('#') {
        return format!("#{}", label.or(names.channel_name(channel)).unwrap_or(channel));
    }
    if let Some(special) = target.strip_prefix('!') {
        // <!here>, <!subteam^S1|@oncall>, <!date^123^{date}|2 March>
        return match label {
            Some(label) => label.to_owned(),
            None => format!("@{}", special.split('^').next_back().unwrap_or(special)),
        };
    }
    let address = target.strip_prefix("mailto:").or(target.strip_prefix("tel:")).unwrap_or(target);
    match label {
        Some(label) if address.ends_with(label) => address.to_owned(),
        Some(label) => format!("{label} ({address})"),
        None => address.to_owned(),
    }
}

/// Decodes the three entities that Slack uses.
fn unescape(text: &str, out: &mut String) {
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        let (before, entity) = rest.split_at(at);
        out.push_str(before);
        let known =
            [("&lt;", '<'), ("&gt;", '>'), ("&amp;", '&')].into_iter().find(|(e, _)| entity.starts_with(e));
        let (name, c) = known.unwrap_or(("&", '&'));
        out.push(c);
        rest = &entity[name.len()..];
    }
    out.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_becomes_readable_text() {
        let names = Names::for_tests(&[("U1", "Ana")], &[("C1", "general")]);
        for (text, want) in [
            ("<@U1> and <@U2> and <@U3|cem>", "@Ana and @U2 and @cem"),
            ("in <#C1> or <#C2|random> or <#C3>", "in #general or #random or #C3"),
            ("<!here> <!subteam^S1|@oncall> <!subteam^S1>", "@here @oncall @S1"),
            ("<https://example.com/a?b=1&amp;c=2>", "https://example.com/a?b=1&c=2"),
            ("<https://example.com|the page>", "the page (https://example.com)"),
            ("<http://example.com|example.com>", "http://example.com"),
            ("<mailto:a@example.com|a@example.com>", "a@example.com"),
            ("1 &lt; 2 &amp;&amp; 3 &gt; 2 &amp;lt; &é", "1 < 2 && 3 > 2 &lt; &é"),
            ("a < b <", "a < b <"),
            ("<<@U1>>", "<@Ana>"),
            ("<>", ""),
        ] {
            assert_eq!(plain(text, &names), want, "{text}");
        }
    }
}
