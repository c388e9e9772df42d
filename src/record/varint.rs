//! Zigzag variable-length integers, as records use them (`org.apache.kafka.common.utils.ByteUtils.readVarint`, `readVarlong`).
//!
//! Reads advance a slice and never panic; a number that is cut short or too long is `None`.

/// The longest `i32`.
pub const VARINT_BYTES_MAX: usize = 5;
/// The longest `i64`.
pub const VARLONG_BYTES_MAX: usize = 10;

/// Takes an `i32` off the front.
#[inline]
pub fn read_varint(bytes: &mut &[u8]) -> Option<i32> {
    // Most are lengths and deltas of one byte.
    if let [first @ 0..0x80, rest @ ..] = *bytes {
        *bytes = rest;
        return Some(unzigzag32(u32::from(*first)));
    }
    let mut value = 0_u32;
    for i in 0..VARINT_BYTES_MAX {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u32::from(byte & 0x7f).wrapping_shl(7 * i as u32);
        if byte & 0x80 == 0 {
            return Some(unzigzag32(value));
        }
    }
    None
}

/// Takes an `i64` off the front.
#[inline]
pub fn read_varlong(bytes: &mut &[u8]) -> Option<i64> {
    if let [first @ 0..0x80, rest @ ..] = *bytes {
        *bytes = rest;
        return Some(unzigzag64(u64::from(*first)));
    }
    let mut value = 0_u64;
    for i in 0..VARLONG_BYTES_MAX {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f).wrapping_shl(7 * i as u32);
        if byte & 0x80 == 0 {
            return Some(unzigzag64(value));
        }
    }
    None
}

/// Appends an `i32`.
pub fn write_varint(out: &mut Vec<u8>, value: i32) {
    write_unsigned(out, u64::from((value as u32).wrapping_shl(1) ^ (value >> 31) as u32));
}

/// Appends an `i64`.
pub fn write_varlong(out: &mut Vec<u8>, value: i64) {
    write_unsigned(out, zigzag64(value));
}

/// The bytes that [`write_varlong`] (and, for an `i32`, [`write_varint`]) takes.
pub fn varlong_size(value: i64) -> usize {
    let bits = (u64::BITS - zigzag64(value).leading_zeros()).max(1);
    bits.div_ceil(7) as usize
}

fn write_unsigned(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn zigzag64(value: i64) -> u64 {
    (value as u64).wrapping_shl(1) ^ (value >> 63) as u64
}

fn unzigzag32(value: u32) -> i32 {
    (value >> 1) as i32 ^ -((value & 1) as i32)
}

fn unzigzag64(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_i32_survives(value: i32, rest: Vec<u8>) {
            let mut bytes = Vec::new();
            write_varint(&mut bytes, value);
            prop_assert_eq!(bytes.len(), varlong_size(value.into()));
            bytes.extend(&rest);
            let mut cursor = &bytes[..];
            prop_assert_eq!(read_varint(&mut cursor), Some(value));
            prop_assert_eq!(cursor, &rest[..]);
        }

        #[test]
        fn an_i64_survives(value: i64, shift in 0..63, rest: Vec<u8>) {
            let value = value >> shift;
            let mut bytes = Vec::new();
            write_varlong(&mut bytes, value);
            prop_assert_eq!(bytes.len(), varlong_size(value));
            bytes.extend(&rest);
            let mut cursor = &bytes[..];
            prop_assert_eq!(read_varlong(&mut cursor), Some(value));
            prop_assert_eq!(cursor, &rest[..]);
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
            let _ = read_varint(&mut &bytes[..]);
            let _ = read_varlong(&mut &bytes[..]);
        }
    }

    #[test]
    fn lying_numbers_are_refused() {
        assert_eq!(read_varint(&mut &[0xff; 5][..]), None, "the fifth byte may not go on");
        assert_eq!(read_varlong(&mut &[0xff; 10][..]), None, "the tenth byte may not go on");
        assert_eq!(read_varint(&mut &[0x80][..]), None, "cut short");
        assert_eq!(read_varint(&mut &[][..]), None);
        assert_eq!(read_varint(&mut &[0x01][..]), Some(-1));
        assert_eq!(read_varint(&mut &[0xff, 0xff, 0xff, 0xff, 0x0f][..]), Some(i32::MIN));
    }
}
