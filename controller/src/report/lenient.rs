//! A reader of JSON values that never stops at a wrong type: what a shape does not expect becomes its
//! `otherwise`, so that one odd value can be named later instead of hiding the rest of the file.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// What a reader expects; everything has a fallback.
pub(super) trait Shape<'de>: Sized {
    /// What comes out.
    type Out;

    /// For whatever is not expected.
    fn otherwise(self) -> Self::Out;

    fn number(self, _: f64) -> Self::Out {
        self.otherwise()
    }

    fn boolean(self, _: bool) -> Self::Out {
        self.otherwise()
    }

    fn text(self, _: &str) -> Self::Out {
        self.otherwise()
    }

    fn null(self) -> Self::Out {
        self.otherwise()
    }

    fn list<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Out, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(self.otherwise())
    }

    fn object<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Out, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(self.otherwise())
    }
}

/// Reads a shape.
pub(super) struct Lenient<S>(pub(super) S);

impl<'de, S: Shape<'de>> DeserializeSeed<'de> for Lenient<S> {
    type Value = S::Out;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Out, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, S: Shape<'de>> Visitor<'de> for Lenient<S> {
    type Value = S::Out;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<S::Out, E> {
        Ok(self.0.boolean(value))
    }

    #[expect(clippy::cast_precision_loss, reason = "as the published program divides them")]
    fn visit_i64<E>(self, value: i64) -> Result<S::Out, E> {
        Ok(self.0.number(value as f64))
    }

    #[expect(clippy::cast_precision_loss, reason = "as the published program divides them")]
    fn visit_u64<E>(self, value: u64) -> Result<S::Out, E> {
        Ok(self.0.number(value as f64))
    }

    fn visit_f64<E>(self, value: f64) -> Result<S::Out, E> {
        Ok(self.0.number(value))
    }

    fn visit_str<E>(self, text: &str) -> Result<S::Out, E> {
        Ok(self.0.text(text))
    }

    fn visit_unit<E>(self) -> Result<S::Out, E> {
        Ok(self.0.null())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<S::Out, A::Error> {
        self.0.list(seq)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<S::Out, A::Error> {
        self.0.object(map)
    }
}
