use super::*;
use crate::formats::support::testing::{problems, read_text, sniffed};

fn turns(dialogue: &Dialogue) -> Vec<(&str, Role, &str)> {
    let turn = |t: &'_ Turn| t.role.clone().unwrap();
    dialogue.turns.iter().map(|t| (t.speaker.as_str(), turn(t), t.text.as_str())).collect()
}

const SESSIONS: &str = "\
7\t0\tI need \"a room\ttravel
7\t1\twhere # to?\ttravel|hotel
8\t1\thello\tbank
8\t2\thi\tbank
9\t0\thello
";

#[test]
fn the_lines_of_a_session_are_one_dialogue() {
    let got = read_text(&Session, "preprocess_session_sgd_test.txt", SESSIONS);
    assert_eq!(got.len(), 2);
    assert_eq!((got[0].id.as_str(), got[0].source.as_str()), ("sgd_test-7", "sgd"));
    assert_eq!(got[0].domains, ["travel", "hotel"]);
    assert_eq!(got[0].metadata["split"], "test");
    assert_eq!(turns(&got[0]), [("0", Role::User, "I need \"a room"), ("1", Role::Agent, "where # to?")]);
    assert_eq!(turns(&got[1])[1].1, Role::Participant);
    assert_eq!(
        problems(&Session, "preprocess_session_sgd_test.txt", SESSIONS),
        [
            "preprocess_session_sgd_test.txt:5 (sgd_test-9): the line has 3 columns, not 4 (session, role, text, topics)"
        ]
    );
}

const TRAIN: &str = "\
010\tI need a room#where to?#Paris|yes#where to?#no|well#where to?#what\t0
010\tI need a room#where to?#Paris|so#where to?#what|no#where to?#yes\t0
10\thello#hi|hello#bye\t0
1x\thello#hi|hello#bye\t0
101\thello#hi|hello#bye\t0
10\thello#hi
";

#[test]
fn a_training_dialogue_is_read_once() {
    let got = read_text(&Train, "/c/mwoz/train.tsv.1", TRAIN);
    assert_eq!(
        got.iter().map(|d| d.id.as_str()).collect::<Vec<_>>(),
        ["mwoz-train-000001", "mwoz-train-000003"]
    );
    assert_eq!(
        turns(&got[0]),
        [("0", Role::User, "I need a room"), ("1", Role::Agent, "where to?"), ("0", Role::User, "Paris")]
    );
    assert!(got[0].domains.is_empty());
    assert_eq!(
        problems(&Train, "/c/mwoz/train.tsv.1", TRAIN),
        [
            "/c/mwoz/train.tsv.1:4: the role `x` is not a digit",
            "/c/mwoz/train.tsv.1:5: the line has 3 roles for 2 utterances",
            "/c/mwoz/train.tsv.1:6: the line has 2 columns, not 3 (roles, samples, label)",
        ]
    );
}

const CLUSTERING: &str = "10\thello#hi|hello#hi\t3\n10\thello#hi|hello#hi\t1\n10\thello#hi\t\n";

#[test]
fn a_clustering_dialogue_has_its_topic_number_as_domain() {
    let got = read_text(&Clustering, "/c/mwoz/clustering_dev.tsv", CLUSTERING);
    assert_eq!(got.len(), 2);
    assert_eq!(
        (got[0].id.as_str(), &got[0].domains[..]),
        ("mwoz-clustering_dev-000001", &["3".to_owned()][..])
    );
    assert_eq!(
        problems(&Clustering, "/c/mwoz/clustering_dev.tsv", CLUSTERING),
        ["/c/mwoz/clustering_dev.tsv:3 (mwoz-clustering_dev-000003): the line has no topic number"]
    );
}

#[test]
fn the_three_layouts_are_detected() {
    let first = |text: &str| text.lines().take(2).collect::<Vec<_>>().join("\n");
    assert_eq!(sniffed("preprocess_session_x.txt", &first(SESSIONS)), Some("dial2vec-session"));
    assert_eq!(sniffed("sessions.txt", &first(SESSIONS)), Some("dial2vec-session"));
    assert_eq!(sniffed("train.tsv", &first(TRAIN)), Some("dial2vec-train"));
    assert_eq!(sniffed("x.tsv", &first(CLUSTERING)), Some("dial2vec-clustering"));
    assert_eq!(sniffed("clustering_test.tsv", "10\thello#hi\t1\n"), Some("dial2vec-clustering"));
    // A score and two sentences.
    assert_ne!(sniffed("sts.txt", "4\ta b\tc d\n"), Some("dial2vec-train"));
}
