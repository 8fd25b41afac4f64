use super::{
    blob::{HEADER_LEN, MAGIC},
    *,
};

/// Writes blobs for the tests.
#[derive(Default)]
pub(super) struct Builder {
    types: Vec<u8>,
    strings: Vec<u8>,
    count: u32,
    /// The offset of the first string.
    strings_at: u32,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self { strings: vec![0], ..Self::default() }
    }

    /// A blob that goes on from another one.
    fn after(base: &Btf) -> Self {
        let strings_at = base.own.strings.len() as u32;
        Self { count: base.type_count() as u32, strings_at, ..Self::default() }
    }

    pub(super) fn name(&mut self, name: &str) -> u32 {
        if name.is_empty() {
            return 0;
        }
        let at = self.strings_at + self.strings.len() as u32;
        self.strings.extend_from_slice(name.as_bytes());
        self.strings.push(0);
        at
    }

    pub(super) fn add(
        &mut self,
        name: &str,
        kind: u32,
        vlen: u32,
        flag: bool,
        size_or_type: u32,
        body: &[u32],
    ) -> u32 {
        let name = self.name(name);
        let info = u32::from(flag) << 31 | kind << 24 | vlen;
        for word in [name, info, size_or_type].iter().chain(body) {
            self.types.extend_from_slice(&word.to_ne_bytes());
        }
        self.count += 1;
        self.count
    }

    pub(super) fn int(&mut self, name: &str, size: u32) -> u32 {
        self.add(name, kind::INT, 0, false, size, &[(1 << 24) | 32])
    }

    pub(super) fn fields(
        &mut self,
        kind: u32,
        name: &str,
        size: u32,
        flag: bool,
        members: &[(&str, u32, u32)],
    ) -> u32 {
        let mut body = Vec::new();
        for &(name, type_id, bits) in members {
            body.extend([self.name(name), type_id, bits]);
        }
        self.add(name, kind, members.len() as u32, flag, size, &body)
    }

    pub(super) fn blob(&self) -> Vec<u8> {
        let mut blob = MAGIC.to_ne_bytes().to_vec();
        blob.extend([1, 0]);
        let types = self.types.len() as u32;
        for word in [HEADER_LEN as u32, 0, types, types, self.strings.len() as u32] {
            blob.extend(word.to_ne_bytes());
        }
        blob.extend(&self.types);
        blob.extend(&self.strings);
        blob
    }
}

fn sample() -> Vec<u8> {
    let mut b = Builder::new();
    let int = b.int("int", 4); // 1
    let comm = b.add("", kind::ARRAY, 0, false, 0, &[int, int, 4]); // 2: int[4]
    let rq = b.fields(kind::STRUCT, "rq", 16, false, &[("pad", int, 0), ("cpu", int, 96)]); // 3
    let constant = b.add("", kind::CONST, 0, false, rq, &[]);
    let pointer = b.add("", kind::PTR, 0, false, constant, &[]); // 5
    let anonymous = b.fields(kind::UNION, "", 8, false, &[("deep", int, 0), ("wide", pointer, 0)]);
    let entity = b.fields(kind::STRUCT, "entity", 24, false, &[("", anonymous, 64), ("rq", pointer, 128)]);
    let entity_t = b.add("entity_t", kind::TYPEDEF, 0, false, entity, &[]);
    b.fields(
        kind::STRUCT,
        "task",
        64,
        true,
        &[("bit", int, 3 << 24 | 5), ("comm", comm, 32), ("se", entity_t, 256)],
    );
    let runqueues = b.add("runqueues", kind::VAR, 0, false, rq, &[1]);
    let other = b.add("other", kind::VAR, 0, false, int, &[1]);
    b.add(".data..percpu", kind::DATASEC, 2, false, 4096, &[other, 0, 4, runqueues, 192, 16]);
    let arg = b.name("arg");
    let proto = b.add("", kind::FUNC_PROTO, 3, false, 0, &[0, 0, arg, int, arg, pointer]);
    let proto_pointer = b.add("", kind::PTR, 0, false, proto, &[]);
    b.add("btf_trace_sample", kind::TYPEDEF, 0, false, proto_pointer, &[]);
    b.add("do_sample", kind::FUNC, 1, false, proto, &[]);
    b.add("tag", kind::DECL_TAG, 0, false, int, &[u32::MAX]);
    b.add("e64", kind::ENUM64, 1, false, 8, &[arg, 1, 0]);
    b.blob()
}

#[test]
fn members_are_found_through_embedded_and_anonymous_structures() {
    let btf = Btf::parse(sample()).unwrap();
    assert_eq!(btf.member("task.comm").unwrap(), Member { offset: 4, size: 16, type_id: TypeId(2) });
    assert_eq!(btf.member_offset("task.se").unwrap(), 32);
    assert_eq!(btf.member_offset("task.se.deep").unwrap(), 40);
    assert_eq!(btf.member_offset("task.se.wide").unwrap(), 40);
    let rq = btf.member("task.se.rq").unwrap();
    assert_eq!((rq.offset, rq.size), (48, 8));
    assert_eq!(btf.member_offset("entity_t.rq").unwrap(), 16);
    let target = btf.pointer_target(rq.type_id).unwrap().unwrap();
    assert_eq!(btf.type_name(target).unwrap(), "rq");
    assert_eq!(btf.shape(target).unwrap(), Shape::Struct);
    assert_eq!(btf.member("rq").unwrap().size, 16);
    assert_eq!(btf.pointer_target(TypeId(1)).unwrap(), None);
}

#[test]
fn what_has_no_offset_is_told_apart() {
    let btf = Btf::parse(sample()).unwrap();
    let message = |path: &str| btf.member(path).unwrap_err().to_string();
    assert_eq!(message("nothing.at"), "this kernel has no type nothing");
    assert_eq!(message("task.se.none"), "task.se has no member none on this kernel");
    assert_eq!(
        message("task.se.rq.cpu"),
        "task.se.rq is no structure that lies inside another, so nothing in it has an offset"
    );
    assert_eq!(message("task.bit"), "task.bit is a bit field");
    assert!(btf.member("").is_err() && btf.member("task.").is_err());
}

#[test]
fn bit_fields_are_in_words() {
    let btf = Btf::parse(sample()).unwrap();
    let task = btf.type_named("task").unwrap();
    let field = BitField { offset: 0, size: 1, shift: 5, bits: 3, signed: true };
    assert_eq!(btf.bit_field_of(task, "bit").unwrap(), Some(field));
    assert_eq!(btf.bit_field_of(task, "comm").unwrap(), None);
    assert_eq!(btf.bit_field_of(task, "none").unwrap(), None);
    // Over the border of a byte, and of four bytes.
    let at = |offset, bits| BitField::at(offset, bits, false).map(|it| (it.offset, it.size, it.shift));
    assert_eq!(at(70, 4), Some((8, 2, 6)));
    assert_eq!(at(92, 8), Some((8, 8, 28)));
    assert_eq!(at(60, 8), None);
}

#[test]
fn variables_functions_and_tracepoints_are_found() {
    let btf = Btf::parse(sample()).unwrap();
    let runqueues = btf.percpu_variable("runqueues").unwrap();
    assert_eq!(runqueues, Variable { id: TypeId(10), offset: 192, size: 16, type_id: TypeId(3) });
    assert!(btf.percpu_variable("pcpu_hot").is_err());
    assert!(btf.variable(".bss", "runqueues").is_err());
    assert!(btf.has_function("do_sample") && !btf.has_function("do_samp") && !btf.has_function("rq"));
    assert!(btf.has_struct("rq") && !btf.has_struct("int") && !btf.has_struct(""));
    assert_eq!(btf.raw_tracepoint("sample").unwrap().args, [TypeId(1), TypeId(5)]);
    assert!(btf.raw_tracepoint("none").is_err());
    assert_eq!(btf.shape(TypeId(1)).unwrap(), Shape::Int { size: 4, signed: true });
    assert_eq!(btf.shape(TypeId(0)).unwrap(), Shape::Void);
    assert_eq!(btf.shape(TypeId(2)).unwrap(), Shape::Array { element: TypeId(1), len: 4 });
}

#[test]
fn circles_and_floods_end() {
    let mut b = Builder::new();
    b.add("a", kind::TYPEDEF, 0, false, 2, &[]);
    b.add("b", kind::TYPEDEF, 0, false, 1, &[]);
    b.fields(kind::STRUCT, "self", 8, false, &[("", 3, 0), ("", 3, 0)]);
    b.add("", kind::ARRAY, 0, false, 0, &[4, 4, 1]);
    b.add("", kind::ARRAY, 0, false, 0, &[6, 6, u32::MAX]);
    b.int("int", u32::MAX);
    b.fields(kind::STRUCT, "high", 8, false, &[("inner", 8, u32::MAX - 7), ("", 8, u32::MAX - 7)]);
    b.fields(kind::STRUCT, "in", 8, false, &[("x", 6, u32::MAX - 7), ("y", 99, 0)]);
    // Each level has two anonymous members of the next: 2^30 paths through 30 types.
    for level in 9..40 {
        b.fields(kind::STRUCT, &format!("l{level}"), 8, false, &[("", level + 1, 0), ("", level + 1, 0)]);
    }
    let btf = Btf::parse(b.blob()).unwrap();
    assert!(btf.member("a.x").is_err());
    assert!(btf.member("self.x").is_err());
    assert!(btf.size_of(TypeId(4)).is_err());
    assert!(btf.size_of(TypeId(5)).is_err());
    assert!(btf.member("high.x").is_err());
    assert!(btf.member("in.y").is_err());
    assert!(btf.member("l9.x").is_err());
    assert!(btf.type_name(TypeId(u32::MAX)).is_err());
}

#[test]
fn damaged_blobs_are_errors_and_never_panics() {
    let good = sample();
    for len in 0..good.len() {
        assert!(Btf::parse(good[..len].to_vec()).is_err(), "{len}");
    }
    // Every byte replaced in turn: whatever is still accepted must answer lookups without a panic.
    for at in 0..good.len() {
        for value in [0, 1, 0x7f, 0xff, good[at] ^ 0x80] {
            let mut blob = good.clone();
            blob[at] = value;
            if let Ok(btf) = Btf::parse(blob) {
                for path in ["task.comm", "task.se.deep", "task.se.rq", "task.bit", "entity_t.rq", "rq"] {
                    let _ = btf.member(path);
                }
                let _ = btf.percpu_variable("runqueues");
                let _ = btf.raw_tracepoint("sample");
                for id in 0..=btf.type_count() as u32 + 1 {
                    let _ = btf.size_of(TypeId(id));
                    let _ = btf.shape(TypeId(id));
                    let _ = btf.type_name(TypeId(id));
                }
            }
        }
    }
}

/// A module's blob, whose types refer to each other, to the kernel's, and to names of both.
fn module(base: &Btf) -> Vec<u8> {
    let mut b = Builder::after(base);
    let rq = base.type_named("rq").unwrap().0;
    let int = base.type_named("int").unwrap().0;
    let inner = b.fields(kind::STRUCT, "inner", 24, false, &[("first", int, 0), ("run", rq, 64)]);
    let pointer = b.add("", kind::PTR, 0, false, inner, &[]);
    // The name is one of the kernel's strings: `comm` of its `task`.
    let comm = base.own.data[base.own.strings.clone()].windows(5).position(|it| it == b"comm\0").unwrap();
    let body = [comm as u32, inner, 64];
    b.add("outer", kind::STRUCT, 1, false, 40, &body);
    // The kernel has one that is larger.
    b.fields(kind::STRUCT, "task", 4, false, &[("mine", int, 0)]);
    let proto = b.add("", kind::FUNC_PROTO, 2, false, 0, &[0, 0, 0, pointer]);
    let proto = b.add("", kind::PTR, 0, false, proto, &[]);
    b.add("btf_trace_inner_done", kind::TYPEDEF, 0, false, proto, &[]);
    b.blob()
}

#[test]
fn modules_go_on_from_the_kernels_types() {
    let base = Btf::parse(sample()).unwrap();
    let btf = Btf::of_module(&base, module(&base)).unwrap();
    let first = base.type_count() as u32 + 1;
    assert_eq!(btf.type_count(), base.type_count() + 7);
    let inner = btf.type_named("inner").unwrap();
    assert_eq!(inner, TypeId(first));
    assert!(btf.is_of_module(inner) && !btf.is_of_module(TypeId(first - 1)));
    assert!(!base.is_of_module(TypeId(1)) && !btf.is_of_module(TypeId(0)));
    // Through the module's structures to the kernel's, by names of both.
    assert_eq!(btf.member("outer.comm.run.cpu").unwrap().offset, 8 + 8 + 12);
    assert_eq!(btf.member("entity_t.rq").unwrap(), base.member("entity_t.rq").unwrap());
    assert_eq!(btf.type_name(inner).unwrap(), "inner");
    assert_eq!(btf.type_name(TypeId(3)).unwrap(), "rq");
    // A module's own type hides the kernel's.
    assert_eq!(btf.member("task").unwrap().size, 4);
    assert_eq!(base.member("task").unwrap().size, 64);
    assert!(btf.function("do_sample").is_ok() && btf.percpu_variable("runqueues").is_ok());
    // The kernel's tracepoints are not the module's.
    assert_eq!(btf.own_tracepoints().collect::<Vec<_>>(), ["inner_done"]);
    assert_eq!(base.own_tracepoints().collect::<Vec<_>>(), ["sample"]);
    let found = btf.raw_tracepoint("inner_done").unwrap();
    assert_eq!((found.id, found.args.len()), (TypeId(first + 6), 1));
    assert_eq!(btf.pointer_target(found.args[0]).unwrap(), Some(inner));
    assert!(base.raw_tracepoint("inner_done").is_err());
    assert!(Btf::of_module(&btf, module(&base)).is_err(), "there are two levels");
}

#[test]
fn damaged_modules_are_errors_and_never_panics() {
    let base = Btf::parse(sample()).unwrap();
    let good = module(&base);
    let ask = |btf: &Btf| {
        for path in ["outer.comm.run.cpu", "inner.run", "task.mine", "entity_t.rq", "nothing.at"] {
            let _ = btf.member(path);
        }
        let _ = btf.raw_tracepoint("inner_done");
        let _ = btf.own_tracepoints().count();
        for id in 0..=btf.type_count() as u32 + 1 {
            let _ = btf.size_of(TypeId(id));
            let _ = btf.shape(TypeId(id));
            let _ = btf.type_name(TypeId(id));
            let _ = btf.members(TypeId(id));
        }
    };
    for len in 0..good.len() {
        assert!(Btf::of_module(&base, good[..len].to_vec()).is_err(), "{len}");
    }
    for at in 0..good.len() {
        for value in [0, 1, 0x7f, 0xff, good[at] ^ 0x80] {
            let mut blob = good.clone();
            blob[at] = value;
            if let Ok(btf) = Btf::of_module(&base, blob) {
                ask(&btf);
            }
        }
    }
    // Of another kernel: with fewer types and strings, and with none at all.
    let mut small = Builder::new();
    small.int("int", 4);
    for blob in [small.blob(), Builder::new().blob()] {
        let other = Btf::parse(blob).unwrap();
        let btf = Btf::of_module(&other, good.clone()).unwrap();
        assert!(btf.member("outer.comm.run.cpu").is_err());
        ask(&btf);
    }
    // A circle through both blobs ends.
    let mut b = Builder::new();
    b.add("a", kind::TYPEDEF, 0, false, 2, &[]);
    let base = Btf::parse(b.blob()).unwrap();
    let mut b = Builder::after(&base);
    b.add("b", kind::TYPEDEF, 0, false, 1, &[]);
    let btf = Btf::of_module(&base, b.blob()).unwrap();
    assert!(btf.size_of(TypeId(1)).is_err() && btf.size_of(TypeId(2)).is_err());
}

#[test]
fn foreign_bytes_are_named() {
    let mut blob = sample();
    blob[..2].reverse();
    assert!(Btf::parse(blob.clone()).unwrap_err().to_string().contains("other byte order"));
    blob[0] = 0;
    assert!(Btf::parse(blob).unwrap_err().to_string().contains("magic"));
}
