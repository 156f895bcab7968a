//! Tests of benchmark recipes and of reports of their results.

use crate::{bench::select, support::Turnwise};

fn recipe(map: f64) -> String {
    format!(
        "about = \"made up\"\npaper = \"dial2vec\"\ntable = \"Table 9\"\n\n[task]\nkind = \"sr\"\ndata = \"select.txt\"\n\n[[rows]]\nranker = \"bm25\"\nexpected = {{ MAP = {map} }}\npaper = {{ MRR = 12.5 }}\n\n[[rows]]\nname = \"T5\"\nmissing = \"its weights are not at hand\"\npaper = {{ MAP = 91.0 }}\n"
    )
}

#[test]
fn recipes_report_expected_and_missed_values() {
    let t = Turnwise::new();
    t.write("data/select.txt", select());
    t.write("recipes/good.toml", recipe(80.6));
    let line = "bench reproduce --recipes recipes";
    let out = t.ok(line);
    assert!(out.contains("holds   BM25"), "{out}");
    assert!(out.contains("expected 80.6, random baseline 59.3"), "{out}");
    assert!(out.contains("the paper 12.5: better"), "{out}");
    assert!(out.contains("best    MAP 80.6 by BM25, the paper's best 91.0 by T5"), "{out}");
    assert!(out.contains("1 row of the paper not run; see the report for the reasons"), "{out}");
    assert!(out.contains("1 number as expected, 0 missed; of the papers' numbers 0 reproduced, 1 better, 0 below, 1 not run; 0 recipes without their data"), "{out}");
    t.write("recipes/bad.toml", recipe(90.0));
    t.write("recipes/gone.toml", recipe(90.0).replace("select.txt", "gone.txt"));
    let out = t.run(line);
    assert_eq!(out.code, 1, "{out:?}");
    assert!(
        out.out.contains("MISSED  BM25") && out.out.contains("not run: data/gone.txt not found"),
        "{out:?}"
    );
    assert!(out.err.contains("error: 1 of the expected numbers were missed"), "{out:?}");
    t.ok(&format!("{line} --only good"));
    t.run(&format!("{line} --only gone")).says(2, &["none of the data found in data"]);
    t.run(&format!("{line} --only goood"))
        .says(2, &["no recipe has `goood` in its name", "did you mean `good`?"]);
    let listed = t.json("bench list --recipes recipes");
    assert_eq!((&listed[0]["name"], &listed[1]["missing"]), (&"bad".into(), &"data/gone.txt".into()));
    assert_eq!(t.json(&format!("{line} --only good"))[0]["rows"][0]["checked"][0]["holds"], true);
    t.write("recipes/good.toml", recipe(80.6).replace("expected = { MAP", "expected = { purity = 1, MAP"));
    t.run(&format!("{line} --only good"))
        .says(3, &["the recipe expects a value of purity, but BM25 has none", "its measures are MAP, MRR"]);
}

#[test]
fn a_report_shows_which_values_are_reproduced() {
    let t = Turnwise::new();
    t.write("data/select.txt", select());
    t.write("recipes/good.toml", recipe(80.6));
    t.write("recipes/bad.toml", recipe(90.0).replace("made up", "a < b & c"));
    t.write("recipes/gone.toml", recipe(90.0).replace("select.txt", "gone.txt"));
    let line = "bench reproduce --recipes recipes";
    assert_eq!(t.run(&format!("{line} --report out.md")).code, 1);
    let report = t.read("out.md");
    assert!(
        report.contains(
            "1 number as expected, 1 missed; of the papers' numbers 0 reproduced, 2 better, 0 below, 4 not run; 1 recipe \
             without their data"
        ),
        "{report}"
    );
    assert!(
        report.contains(
            "| [good](#good) (Table 9) | 0 | 1 | 0 | 1 | MAP 80.6 by BM25, the paper's best 91.0 by T5;"
        ),
        "{report}"
    );
    assert!(report.contains("Not run: T5: its weights are not at hand."), "{report}");
    assert!(report.contains("| T5 | MAP | – | – | – | 91.0 | not run |"), "{report}");
    assert!(report.contains("| BM25 | MAP | 80.6 | 80.6 | 59.3 | – | as expected |"), "{report}");
    assert!(report.contains("| BM25 | MAP | 80.6 | 90.0 | 59.3 | – | **missed** |"), "{report}");
    assert!(report.contains("| BM25 | MRR | 83.3 | – | 64.2 | 12.5 | better |"), "{report}");
    assert!(report.contains("Not run: data/gone.txt not found."), "{report}");
    assert_eq!(t.run(&format!("{line} --report out.html")).code, 1);
    let page = t.read("out.html");
    assert!(
        page.contains("<svg") && page.contains("a &lt; b &amp; c") && !page.contains("a < b & c"),
        "{page}"
    );
    // The page loads nothing from other hosts.
    assert!(!page.contains("http") && !page.contains("src="), "{page}");
    t.run(&format!("{line} --report out.pdf")).says(2, &["out.pdf is neither .md nor .html"]);
}

#[test]
fn an_invalid_recipe_is_reported_with_its_line() {
    let t = Turnwise::new();
    t.write("recipes/x.toml", recipe(80.6).replace("ranker =", "rankr ="));
    t.run("bench list --recipes recipes").says(3, &["recipes/x.toml: unknown field `rankr`", "on line 10"]);
    t.write("recipes/x.toml", recipe(80.6).replace("kind = \"sr\"", "kind = \"rs\""));
    t.run("bench list --recipes recipes").says(3, &["unknown variant `rs`"]);
    t.write("recipes/x.toml", b"about = \"\xff\"");
    t.run("bench list --recipes recipes").says(3, &["recipes/x.toml: invalid UTF-8 at byte 9"]);
    t.write("recipes/x.toml", recipe(80.6).replace("ranker = \"bm25\"", "name = \"x\""));
    t.run("bench list --recipes recipes")
        .says(3, &["the recipe x: a row needs `ranker`, or both `name` and `missing`; check x"]);
    // Without --recipes, the included recipes are used.
    assert!(t.ok("bench list").contains("dial2vec-sgd"));
    let listed = t.json("bench list --paper dialoguecse");
    assert!(listed.as_array().unwrap().iter().all(|recipe| recipe["paper"] == "dialoguecse"));
    t.run("bench list --paper dialoguese")
        .says(2, &["unknown paper `dialoguese`", "did you mean `dialoguecse`?"]);
    t.write("empty/readme", "");
    t.run("bench list --recipes empty")
        .says(2, &["empty contains no recipes", "the built-in recipes are used"]);
}

#[test]
fn a_recipe_is_run_by_name_or_file() {
    let t = Turnwise::new();
    t.write("data/select.txt", select());
    t.write("recipes/good.toml", recipe(90.0));
    // `bench run` does not check expected values.
    let out = t.ok("bench run good --recipes recipes");
    assert!(out.contains("BM25") && out.contains("80.6") && !out.contains("MISSED"), "{out}");
    assert!(out.contains("not run: T5: its weights are not at hand"), "{out}");
    assert_eq!(t.ok("bench run recipes/good.toml"), out);
    t.run("bench run goood --recipes recipes").says(2, &["unknown recipe `goood`", "did you mean `good`?"]);
    t.run("bench run good --recipes recipes --data elsewhere")
        .says(2, &["good: elsewhere/select.txt not found", "set the folder of the data with --data"]);
}

#[test]
fn a_row_whose_model_is_missing_is_not_an_error() {
    let t = Turnwise::new();
    t.write("data/select.txt", select());
    t.write(
        "recipes/r.toml",
        recipe(80.6).replace("missing = \"its weights are not at hand\"", "ranker = \"model:some/one\""),
    );
    t.ok("bench reproduce --recipes recipes --report out.md");
    assert!(
        t.read("out.md").contains("Not run: T5: its model is not installed: `turnwise model pull some/one`.")
    );
    // Test a recipe whose model is created by a training run.
    t.write(
        "recipes/r.toml",
        recipe(80.6).replace(
            "missing = \"its weights are not at hand\"",
            "ranker = \"model:runs/x/model+mean\"\ntrain = \"dial2vec-sgd -o runs/x\"",
        ),
    );
    t.write("there/select.txt", select());
    for (more, result) in [("", ""), (" --data there", " --data there")] {
        t.ok(&format!("bench reproduce --recipes recipes --report out.md{more}"));
        let why =
            format!("T5: its model is not trained yet: `turnwise train dial2vec-sgd -o runs/x{result}`.");
        assert!(t.read("out.md").contains(&why), "{}", t.read("out.md"));
    }
}

#[test]
fn all_results_of_a_folder_are_reported() {
    let t = Turnwise::new();
    t.run("bench report").says(2, &["there are no results in benchmark-results"]);
    t.write("select.txt", select());
    t.ok("bench sr select.txt -r bm25 -r tfidf");
    t.ok("bench sr select.txt -r random --seeds 3");
    t.write("benchmark-results/else.json", "{}");
    t.ok("bench report -o a.md -o a.html");
    let report = t.read("a.md");
    assert!(report.contains("| BM25 | 80.6 | 83.3 |") && report.contains("| TF-IDF |"), "{report}");
    // The report shows the mean over the seeds and the deviation, not each seed.
    assert_eq!(
        (report.matches("| random baseline |").count(), report.matches("3 seeds from 0 on").count()),
        (2, 1)
    );
    assert!(
        report.contains(" ± ") && report.matches("| random baseline | 59.3 | 64.2 |").count() == 2,
        "{report}"
    );
    assert!(t.read("a.html").contains("3 seeds from 0 on"));
}

#[test]
fn a_report_includes_earlier_results_if_the_data_is_missing() {
    let t = Turnwise::new();
    t.write("data/select.txt", select());
    t.write("recipes/good.toml", recipe(80.6));
    t.ok("bench reproduce --recipes recipes");
    t.run("bench reproduce --recipes recipes --data elsewhere")
        .says(2, &["none of the data found in elsewhere"]);
    t.ok("bench report -o a.md");
    assert!(t.read("a.md").contains("1 number as expected"), "{}", t.read("a.md"));
    // A user's recipe does not replace the included recipe of the same name.
    t.write("mine/dial2vec-sgd.toml", recipe(80.6).replace("dial2vec\"", "own\""));
    t.ok("bench reproduce --recipes mine");
    assert!(t.path("benchmark-results/table-dial2vec-sgd-own.json").exists());
    assert!(!t.path("benchmark-results/table-dial2vec-sgd.json").exists());
}

#[test]
fn a_value_at_the_random_baseline_is_marked() {
    let t = Turnwise::new();
    // Sentences that share a word have different intents.
    let line = |n: usize| {
        let word = ["card", "parcel"][n / 2];
        format!("{n}\t{word} {n}\ti{}\t{}\t{}\n", n % 2, (n + 2) % 4, n ^ 1)
    };
    t.write("data/select.txt", (0..4).map(line).collect::<String>());
    t.write(
        "recipes/r.toml",
        recipe(50.0).replace("within", "").replace("paper = { MRR = 12.5 }", "paper = { MAP = 30 }"),
    );
    let out = t.run("bench reproduce --recipes recipes --report a.md");
    assert!(out.out.contains("NO BETTER"), "{out:?}");
    let report = t.read("a.md");
    assert!(report.contains("no better than the random baseline"), "{report}");
    assert!(report.contains("above 1 of the paper's rows). The paper used different data"), "{report}");
}
