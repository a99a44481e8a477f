//! Enums whose variants have numbers and names.

/// Makes an enum that has a number and a name beside each variant. Numbers have to go up by one, from 0 on.
macro_rules! named {
    (
        $(#[$about:meta])*
        pub enum $of:ident { $($(#[$doc:meta])* $variant:ident = $number:literal, $name:literal;)+ }
    ) => {
        $(#[$about])*
        pub enum $of {
            $($(#[$doc])* $variant = $number,)+
        }

        impl $of {
            /// All of them, each at its number.
            pub const ALL: [Self; [$($number),+].len()] = {
                let (all, mut at) = ([$(Self::$variant),+], 0);
                while at < all.len() {
                    assert!(all[at] as usize == at, "numbers go up by one");
                    at += 1;
                }
                all
            };

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

pub(in crate::packet) use named;
