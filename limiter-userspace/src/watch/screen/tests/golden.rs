//! Whole screens, compared with files. `LIMITER_BLESS=1` writes them anew, to be read in the difference.

use std::{env, fs, path::Path};

use super::{sizes::Pane, *};

const SIZES: [(u16, u16); 3] = [(200, 60), (80, 24), (45, 20)];

#[test]
fn panes_are_drawn_as_before() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/screens");
    let panes: [Pane; 3] = [
        ("main", |_| {}),
        ("source", opened),
        ("drops", |view| {
            press(view, "x");
            view.drops = Some(drops::some());
        }),
    ];
    for (pane, open) in panes {
        let mut view = view(false);
        open(&mut view);
        for (width, height) in SIZES {
            let file = folder.join(format!("{pane}-{width}x{height}.txt"));
            let drawn = drawn(&view, width, height).join("\n") + "\n";
            if env::var_os("LIMITER_BLESS").is_some() {
                fs::write(&file, &drawn).unwrap();
            }
            let expected = fs::read_to_string(&file).unwrap_or_default();
            assert!(drawn == expected, "{}:\n{drawn}", file.display());
        }
    }
}
