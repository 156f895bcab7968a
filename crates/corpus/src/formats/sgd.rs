//! Schema-Guided Dialogue (SGD): files with arrays of dialogues in the folders `train`, `dev` and `test`. Each folder
//! also has a `schema.json`.

use serde::Deserialize;

use crate::formats::prelude::*;

pub(super) static FORMAT: Format = Format {
    name: "sgd",
    about: "Schema-Guided Dialogue (dialogues_*.json in train, dev, test); a dialogue's domains are its services",
    sniff,
    read,
};

#[derive(Deserialize)]
#[serde(expecting = "an object with a dialogue")]
struct Record {
    dialogue_id: Option<String>,
    #[serde(default)]
    services: Vec<String>,
    turns: Vec<FramedTurn>,
}

fn sniff(probe: &Probe<'_>) -> Fit {
    if any_element(probe, 1, |_, value| is_framed(value, false)) {
        Fit::Yes
    } else if is_schema(probe) {
        Fit::Companion
    } else {
        Fit::No
    }
}

fn read(input: Input, options: &ReadOptions) -> Result<Dialogues> {
    // Dialogue ids are unique only within a split.
    let split = input.folder_name().and_then(|folder| split_of(&folder)).or_else(|| split_of(&input.stem()));
    let stem = input.stem();
    Ok(support::from_elements(input, options, 1, move |element| {
        let read: Record = record(element, Some("dialogue_id"))?;
        let id = match (read.dialogue_id.filter(|id| !id.is_empty()), &split) {
            (Some(id), Some(split)) => DialogueId::new(format!("{split}-{id}"))?,
            (id, _) => support::id_or_generated(id, &stem, position(element))?,
        };
        let mut dialogue = support::dialogue(id, "sgd", Some("en"));
        read.services.iter().for_each(|service| push_unique(&mut dialogue.domains, service));
        dialogue.note("split", split.as_deref());
        add_framed_turns(&mut dialogue, read.turns);
        Ok(Some(dialogue))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::support::testing::{problems, read_text, sniffed};
    use crate::{Role, formats, input::Input};

    const TWO_SERVICES: &str = r#"[{"dialogue_id":"1_00007","services":["Boats_1","Inns_2"],"turns":[
        {"speaker":"USER","utterance":"A boat to the island, please.","frames":[{"service":"Boats_1",
         "actions":[{"act":"INFORM_INTENT","slot":"intent"},{"act":"INFORM"},{"act":"INFORM"}],
         "state":{"active_intent":"FindBoat","requested_slots":[],"slot_values":{}}}]},
        {"speaker":"SYSTEM","utterance":"There is one at nine.","frames":[{"service":"Boats_1",
         "actions":[{"act":"OFFER"}],"service_call":{"method":"FindBoat","parameters":{}},"service_results":[]}]},
        {"speaker":"USER","utterance":"Good. I also need a bed there.","frames":[
         {"service":"Boats_1","state":{"active_intent":"FindBoat"}},
         {"service":"Inns_2","state":{"active_intent":"FindInn"}}]},
        {"speaker":"USER","utterance":"Thanks, bye.","frames":[{"service":"Inns_2","state":{"active_intent":"NONE"}}]}]}]"#;

    #[test]
    fn a_dialogue_keeps_services_intents_and_acts() {
        let d = &read_text(&FORMAT, "corpus/dev/dialogues_001.json", TWO_SERVICES)[0];
        assert_eq!(d.id.as_str(), "dev-1_00007");
        assert_eq!((d.source.as_str(), d.language.as_deref()), ("sgd", Some("en")));
        assert_eq!(d.domains, ["Boats_1", "Inns_2"]);
        assert_eq!(d.intents, ["FindBoat", "FindInn"]);
        assert_eq!(d.metadata["split"], "dev");
        let roles: Vec<_> = d.turns.iter().map(|t| t.role.clone().unwrap()).collect();
        assert_eq!(roles, [Role::User, Role::Agent, Role::User, Role::User]);
        assert_eq!((d.turns[0].speaker.as_str(), d.turns[1].speaker.as_str()), ("USER", "SYSTEM"));
        assert_eq!(d.turns[0].acts, ["INFORM_INTENT", "INFORM"]);
        assert_eq!(d.turns[1].metadata["service_call"], "FindBoat");
        // If a turn has a new intent and also repeats earlier intents, the intent of the turn is the new intent.
        let intents: Vec<_> = d.turns.iter().map(|t| t.intent.as_deref()).collect();
        assert_eq!(intents, [Some("FindBoat"), None, Some("FindInn"), None]);
        assert_eq!(d.turns[2].metadata["services"], serde_json::json!(["Boats_1", "Inns_2"]));
    }

    #[test]
    fn ids_without_a_split_and_generated_ids() {
        let ids = |name| {
            let text = r#"[{"dialogue_id":"1_00007","turns":[{"speaker":"USER","utterance":"x"}]},{"turns":[{"speaker":"USER","utterance":"x"}]}]"#;
            read_text(&FORMAT, name, text).iter().map(|d| d.id.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(ids("elsewhere/boats.json"), ["1_00007", "boats-000002"]);
        assert_eq!(ids("elsewhere/boats_test.json"), ["test-1_00007", "boats_test-000002"]);
    }

    #[test]
    fn bad_dialogues_are_reported_and_the_rest_is_read() {
        let text = r#"[{"dialogue_id":"a","services":[]},
            {"dialogue_id":"b","services":[],"turns":[]},
            {"dialogue_id":"c","services":[],"turns":[{"speaker":"USER","utterance":5}]},
            {"dialogue_id":"d","services":[],"turns":[{"speaker":"USER","utterance":"fine"}]},
            7, {"dialogue_id":"#;
        assert_eq!(read_text(&FORMAT, "x.json", text).len(), 1);
        assert_eq!(
            problems(&FORMAT, "x.json", text),
            [
                "x.json:1 (a): missing field `turns` at column 33",
                "x.json:2 (b): the dialogue has no turns",
                "x.json:3 (c): invalid type: integer `5`, expected a string at column 73",
                "x.json:5: invalid type: integer `7`, expected an object with a dialogue at column 1",
                "x.json:5: the file ends in the middle of a JSON value",
            ]
        );
    }

    #[test]
    fn sgd_is_distinguished_from_multiwoz() {
        assert_eq!(sniffed("dialogues_001.json", TWO_SERVICES), Some("sgd"));
        let multiwoz = TWO_SERVICES.replace(r#""speaker""#, r#""turn_id":"0","speaker""#);
        assert_ne!(sniffed("dialogues_001.json", &multiwoz), Some("sgd"));
        let schema =
            r#"[{"service_name":"Boats_1","description":"d","slots":[],"intents":[{"name":"FindBoat"}]}]"#;
        let input = Input::from_stream("s".into(), None, Box::new(std::io::Cursor::new(schema))).unwrap();
        assert_eq!(formats::sniff(&input.probe()).unwrap().1, Fit::Companion);
    }
}
