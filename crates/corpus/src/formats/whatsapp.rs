//! WhatsApp chats, exported as text by an iPhone (`[02/03/26, 09:14:05] Ann: hi`) or by Android
//! (`02/03/2026, 09:14 - Ann: hi`).
//!
//! - A chat can span years, so it is split into dialogues. A dialogue ends after more than eight hours of silence, or
//!   when a new day starts after more than an hour of silence.
//! - A dialogue id is the name of the chat and the time of the first message of the dialogue. The name of the chat is
//!   the file name, or the folder name if the file is `_chat.txt`. The ids are the same in later exports, except if an
//!   export starts in the middle of a dialogue because old messages are missing.
//! - The order of day and month is detected from the first 256 KiB of the file (see [`order`]). If the order is only
//!   assumed, the dialogues have the metadata `date_order`. A date that is invalid in this order is reported.
//! - The times are local times of the phone without a time zone. They are read as UTC.
//! - Notices (`Ann added Bob`) are turns with the role `system`. A dialogue with only notices is dropped. An iPhone
//!   exports notices as messages. Of these, only English notices are recognized, by phrases.
//! - `<Media omitted>` and similar texts stay in the text of the turn. The metadata `media` and `attachment` of the
//!   turn describe the media. Deleted and edited messages have the metadata `deleted` and `edited`.

mod line;

use jiff::{SignedDuration, civil::DateTime};

use crate::{
    THREAD,
    formats::{
        chat_text::{self, Draft, LineReader, Out},
        prelude::*,
    },
};
use line::{Content, Header, Order, clean, order, without_edited};

pub(super) static FORMAT: Format = Format {
    name: "whatsapp",
    about: "WhatsApp chat, exported as text from an iPhone or Android",
    sniff,
    read,
};

/// Time without messages after which a new dialogue starts.
const SILENCE: SignedDuration = SignedDuration::from_hours(8);
/// Time without messages after which a new dialogue starts if the next message is on a later day.
const SILENCE_OVER_MIDNIGHT: SignedDuration = SignedDuration::from_hours(1);

fn sniff(probe: &Probe<'_>) -> Fit {
    let mut lines = probe.lines().take(200);
    let Some(first) = lines.next().and_then(Header::parse) else {
        return Fit::No;
    };
    let more: Vec<_> = lines.filter_map(Header::parse).collect();
    let has_speaker = more.iter().chain([&first]).any(|header| Content::parse(header.rest).speaker.is_some());
    if has_speaker { Fit::Yes } else { Fit::No }
}

fn read(input: Input, options: &ReadOptions) -> Result<Dialogues> {
    let (order, assumed) = order(input.probe().lines());
    let stem = match input.stem() {
        stem if stem == "_chat" => input.folder_name().unwrap_or(stem),
        stem => stem,
    };
    let title = ["WhatsApp Chat with ", "WhatsApp Chat - "].iter().find_map(|p| stem.strip_prefix(p));
    let reader = Reader {
        title: title.unwrap_or(&stem).to_owned(),
        stem,
        limit: options.max_record,
        order,
        assumed,
        last_time: None,
        skipping: false,
        draft: None,
    };
    Ok(chat_text::read(input, options, reader))
}

struct Reader {
    stem: String,
    title: String,
    limit: usize,
    order: Order,
    /// Whether `order` is only assumed, because the dates fit several orders.
    assumed: bool,
    last_time: Option<DateTime>,
    /// Whether lines without date and time are skipped, because the text before them was rejected.
    skipping: bool,
    draft: Option<Draft>,
}

impl LineReader for Reader {
    fn line(&mut self, line: Line<'_>, out: &mut Out) {
        let Some(header) = Header::parse(line.text) else {
            match &mut self.draft {
                _ if self.skipping => {}
                Some(draft) => continue_message(draft, line.text),
                None if line.text.trim().is_empty() => {}
                None => {
                    self.skipping = true;
                    let reason = "text before the first message; is the start of the export missing?";
                    out.push_back((line.number, Err(reason.into())));
                }
            }
            return;
        };
        let Some(time) = header.time(self.order) else {
            self.skipping = true;
            let (date, order) = (header.date, self.order.name());
            let reason = format!(
                "the date {date} or its time is invalid in the order {order}, which was detected at the beginning of the file"
            );
            out.push_back((line.number, Err(reason.into())));
            return;
        };
        self.skipping = false;
        let fresh = self.last_time.replace(time).is_none_or(|last| is_new_dialogue(last, time));
        if fresh || self.draft.is_none() {
            self.end(out);
            self.begin(&header, time, line.number, out);
        }
        if let Some(draft) = &mut self.draft {
            add(draft, &header, time);
        }
    }

    fn end(&mut self, out: &mut Out) {
        if let Some(draft) = self.draft.take() {
            let turns = &draft.dialogue.turns;
            if turns.is_empty() || turns.iter().any(|t| t.role != Some(Role::System)) {
                out.push_back(draft.finish());
            }
        }
    }
}

fn is_new_dialogue(last: DateTime, next: DateTime) -> bool {
    let silence = next.duration_since(last);
    silence > SILENCE || silence > SILENCE_OVER_MIDNIGHT && next.date() != last.date()
}

fn add(draft: &mut Draft, header: &Header<'_>, time: DateTime) {
    let content = Content::parse(header.rest);
    let role = if content.speaker.is_some() { Role::Participant } else { Role::System };
    let edited = without_edited(&content.text);
    let text = edited.unwrap_or(&content.text);
    let Some(turn) = draft.turn(&content.speaker.unwrap_or_default(), role, text) else {
        return;
    };
    turn.time = Time::from_civil(time);
    turn.note("edited", edited.map(|_| true));
    turn.note("deleted", content.deleted.then_some(true));
    turn.note("media", content.media);
    turn.note("attachment", content.attachment);
}

fn continue_message(draft: &mut Draft, line: &str) {
    let line = clean(line);
    let edited = without_edited(&line);
    draft.append(edited.unwrap_or(&line));
    if let (Some(_), Some(turn)) = (edited, draft.dialogue.turns.last_mut()) {
        turn.note("edited", true);
    }
}

impl Reader {
    fn begin(&mut self, header: &Header<'_>, time: DateTime, line: u64, out: &mut Out) {
        let format = if header.has_seconds() { "%Y-%m-%dT%H:%M:%S" } else { "%Y-%m-%dT%H:%M" };
        match DialogueId::new(format!("{}-{}", self.stem, time.strftime(format))) {
            Ok(id) => {
                let mut dialogue = support::dialogue(id, "whatsapp", None);
                dialogue.title = Some(self.title.clone());
                dialogue.note(THREAD, self.title.as_str());
                dialogue.time = Time::from_civil(time);
                let order = self.assumed.then(|| format!("{} (assumed)", self.order.name()));
                dialogue.note("date_order", order);
                self.draft = Some(Draft::new(dialogue, line, self.limit));
            }
            // The file name cannot be part of a dialogue id.
            Err(e) => out.push_back((line, Err(e.into()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::support::testing::{problems, read_text, sniffed};

    const ANDROID: &str = "\
02/03/2026, 09:14 - Messages and calls are end-to-end encrypted. Tap to learn more.
02/03/2026, 09:14 - Ann: are you up?
the tickets go on sale at ten

I mean it
02/03/2026, 09:20 - Bob: <Media omitted>
02/03/2026, 23:40 - Bob: got them
03/03/2026, 00:10 - Ann: hooray <This message was edited>
03/03/2026, 01:30 - Ann added Cem
03/03/2026, 11:00 - Cem: hi
13/03/2026, 11:00 - Ann left
";

    #[test]
    fn a_chat_is_split_at_silence() {
        assert_eq!(sniffed("x.txt", ANDROID), Some("whatsapp"));
        let name = "WhatsApp Chat with Tickets.txt";
        assert!(problems(&FORMAT, name, ANDROID).is_empty());
        let got = read_text(&FORMAT, name, ANDROID);
        let shown: Vec<_> = got
            .iter()
            .map(|d| {
                let turns: Vec<_> = d.turns.iter().map(|t| format!("{}: {}", t.speaker, t.text)).collect();
                format!("{} [{}] {}", d.id, d.title.clone().unwrap_or_default(), turns.join(" | "))
            })
            .collect();
        assert_eq!(
            shown,
            [
                "WhatsApp Chat with Tickets-2026-03-02T09:14 [Tickets] : Messages and calls are end-to-end encrypted. Tap to learn more. | Ann: are you up?\nthe tickets go on sale at ten\n\nI mean it | Bob: <Media omitted>",
                "WhatsApp Chat with Tickets-2026-03-02T23:40 [Tickets] Bob: got them | Ann: hooray | : Ann added Cem",
                "WhatsApp Chat with Tickets-2026-03-03T11:00 [Tickets] Cem: hi",
            ]
        );
        assert_eq!(got[1].turns[1].metadata["edited"], true);
        assert_eq!(got[0].turns[2].metadata["media"], "omitted");
        assert_eq!(got[1].turns[2].role, Some(Role::System));
        assert_eq!(got[0].turns[1].time.unwrap().to_string(), "2026-03-02T09:14:00Z");
        assert_eq!(got[0].metadata.keys().collect::<Vec<_>>(), [THREAD]);
    }

    #[test]
    fn ids_are_stable_in_later_exports() {
        let cut = ANDROID.find("03/03/2026, 11:00").unwrap();
        let early = read_text(&FORMAT, "c.txt", &ANDROID[..cut]);
        let late = read_text(&FORMAT, "c.txt", ANDROID);
        let ids = |ds: &[Dialogue]| ds.iter().map(|d| d.id.as_str().to_owned()).collect::<Vec<_>>();
        assert_eq!(ids(&early)[..], ids(&late)[..2]);
    }

    #[test]
    fn an_iphone_export_is_named_after_its_folder() {
        let text = "\u{200e}[3/14/26, 9:14:05\u{202f}AM] Trip: \u{200e}Messages and calls are end-to-end encrypted.\r\n[3/14/26, 9:15:00\u{202f}AM] ~\u{202f}Ann: hi\r\n[3/14/26, 1:15:00\u{202f}PM] Bob: \u{200e}image omitted\r\n";
        assert_eq!(sniffed("_chat.txt", text), Some("whatsapp"));
        let got = &read_text(&FORMAT, "WhatsApp Chat - Trip/_chat.txt", text)[0];
        assert_eq!(got.id.as_str(), "WhatsApp Chat - Trip-2026-03-14T09:14:05");
        assert_eq!(got.title.as_deref(), Some("Trip"));
        assert_eq!(got.turns[0].role, Some(Role::System));
        assert_eq!(got.turns[1].speaker, "Ann");
        assert_eq!(got.turns[2].time.unwrap().to_string(), "2026-03-14T13:15:00Z");
        assert_eq!(got.turns[2].text, "image omitted");
    }

    #[test]
    fn an_assumed_order_is_recorded_and_invalid_dates_are_reported() {
        let got = &read_text(&FORMAT, "c.txt", "02/03/2026, 09:14 - Ann: hi\n")[0];
        assert_eq!(got.metadata["date_order"], "day/month/year (assumed)");
        let text = "lost\n02/03/26, 09:14 - Ann: a\n13/03/26, 09:14 - Ann: b\n14/03/26, 09:14 - Ann: b\n03/15/26, 09:15 - Ann: c\nmore of c\n03/03/26, 25:10 - Ann: d\n14/03/26, 09:16 - Ann: e\n";
        assert_eq!(
            problems(&FORMAT, "c.txt", text),
            [
                "c.txt:1: text before the first message; is the start of the export missing?",
                "c.txt:5: the date 03/15/26 or its time is invalid in the order day/month/year, which was detected at the beginning of the file",
                "c.txt:7: the date 03/03/26 or its time is invalid in the order day/month/year, which was detected at the beginning of the file",
            ]
        );
        let got = read_text(&FORMAT, "c.txt", text);
        assert_eq!(got.last().unwrap().turns.iter().map(|t| &*t.text).collect::<Vec<_>>(), ["b", "e"]);
    }

    #[test]
    fn other_text_is_not_detected() {
        assert_eq!(sniffed("a.txt", "[12:01] <ann> bob: hi\n"), None);
        assert_eq!(sniffed("a.txt", "02/03/2026, 09:14 - started\n02/03/2026, 09:14 - stopped\n"), None);
        assert_eq!(
            sniffed(
                "a.txt",
                "[2026-03-02 09:14] Ann: a\n[2026-03-02 09:15] Bob: b\n[2026-03-02 09:16] Ann: c\n[2026-03-02 09:17] Bob: c\n"
            ),
            Some("transcript")
        );
    }
}
