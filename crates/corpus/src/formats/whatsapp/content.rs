//! Parser for the content of WhatsApp messages: speaker and text, or a notice.

use super::line::{clean, is_mark, is_space};

/// Content of a message.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    /// The speaker; `None` for a notice.
    pub(super) speaker: Option<String>,
    pub(super) text: String,
    /// `omitted` if a file is not part of the export, `attached` if it is.
    pub(super) media: Option<&'static str>,
    pub(super) attachment: Option<String>,
    pub(super) deleted: bool,
}

/// Phrases before the colon of a notice: `Ann changed the subject to "Trip: day 2"`.
const NOTICE_NAMES: [&str; 6] =
    [" changed the ", " changed this ", " changed to ", " created group ", " added ", " security code "];

/// Phrases in notices that iPhones export as messages of the chat or of a person.
const NOTICES: [&str; 22] = [
    "end-to-end encrypted",
    "created this group",
    "created group",
    "added you",
    " added ",
    " removed ",
    "joined using ",
    "joined from ",
    "joined this group",
    " left",
    "changed the subject",
    "changed the group",
    "changed this group",
    "changed their phone number",
    "security code",
    "disappearing messages",
    "pinned a message",
    "now an admin",
    "is a contact",
    "this contact",
    "voice call",
    "video call",
];

impl Content {
    pub(super) fn parse(rest: &str) -> Self {
        let (name, said) = match rest.split_once(": ") {
            Some((name, said)) => (name, said),
            None => match rest.strip_suffix(':') {
                Some(name) => (name, ""),
                None => {
                    return Content { text: clean(rest), ..Content::default() };
                }
            },
        };
        let is_notice_name = name.contains(['"', '“']) || NOTICE_NAMES.iter().any(|n| name.contains(n));
        let marked = said.contains('\u{200e}');
        let text = clean(said);
        let speaker =
            clean(name.trim_start_matches(is_mark).trim_start_matches('~').trim_start_matches(is_space));
        if is_notice_name || speaker.is_empty() {
            return Content { text: clean(rest), ..Content::default() };
        }
        if said.starts_with('\u{200e}') && NOTICES.iter().any(|notice| text.contains(notice)) {
            return Content { text, ..Content::default() };
        }
        let mut content = Content { speaker: Some(speaker), ..Content::default() };
        if let Some(inner) =
            text.strip_prefix('<').and_then(|t| t.strip_suffix('>')).filter(|t| !t.contains('>'))
        {
            match inner.split_once(": ") {
                // `<attached: 00000012-PHOTO-2026-03-02.jpg>` in any language
                Some((_, file)) if file.contains('.') => {
                    (content.media, content.attachment) = (Some("attached"), Some(file.to_owned()));
                }
                _ if inner.contains(' ') && inner.len() < 60 => content.media = Some("omitted"),
                _ => {}
            }
        } else if marked && text.ends_with(" omitted") {
            content.media = Some("omitted");
        } else if let Some(file) = text.strip_suffix(" (file attached)") {
            (content.media, content.attachment) = (Some("attached"), Some(file.to_owned()));
        }
        content.deleted =
            text.starts_with("This message was deleted") || text.starts_with("You deleted this message");
        content.text = text;
        content
    }
}

/// Removes the edit mark from the end of a line. Returns `None` if there is none.
pub(super) fn without_edited(text: &str) -> Option<&str> {
    text.strip_suffix("<This message was edited>").map(str::trim_end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speakers_notices_and_media_are_recognized() {
        let speaker = |rest: &str| Content::parse(rest).speaker;
        assert_eq!(speaker("Ann: a: b").as_deref(), Some("Ann"));
        assert_eq!(speaker("~\u{202f}Ann: x").as_deref(), Some("Ann"));
        assert_eq!(speaker("\u{202a}+49 555 0100\u{202c}: x").as_deref(), Some("+49 555 0100"));
        assert_eq!(speaker("Ann:").as_deref(), Some("Ann"));
        assert_eq!(speaker("Ann added Bob"), None);
        assert_eq!(speaker("Ann changed the subject to \"Trip: day 2\""), None);
        assert_eq!(speaker("Trip: \u{200e}Ann created this group"), None);
        assert_eq!(speaker("Ann: Bob created this group").as_deref(), Some("Ann"));
        let media = |rest: &str| (Content::parse(rest).media, Content::parse(rest).attachment);
        assert_eq!(media("Ann: <Media omitted>"), (Some("omitted"), None));
        assert_eq!(media("Ann: \u{200e}image omitted"), (Some("omitted"), None));
        assert_eq!(media("Ann: the image omitted"), (None, None));
        assert_eq!(media("Ann: <3>"), (None, None));
        assert_eq!(
            media("Ann: \u{200e}<attached: 12-PHOTO.jpg>"),
            (Some("attached"), Some("12-PHOTO.jpg".into()))
        );
        assert_eq!(media("Ann: IMG-1.jpg (file attached)"), (Some("attached"), Some("IMG-1.jpg".into())));
        assert!(Content::parse("Ann: \u{200e}This message was deleted.").deleted);
    }
}
