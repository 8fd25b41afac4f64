//! Stock trace-cmd opens what the writer writes. Contents are compared, for it exits with 0 on damaged files
//! as well.

use std::io::{Read, Seek, SeekFrom, Write};

use crate::common::{
    COMPRESSIONS, Scratch, pages, report, setup, squeeze, squeezed, str, switch, text, tick, trace_cmd,
};
use tracedat::{
    Buffer, ChunkCompressor, Compression, EventSystem, FileOption, Section, Setup, Writer, layout, page,
};

const MS: u64 = 1_000_000;

/// Three CPUs' worth of all events.
fn mixed() -> Vec<(u32, Vec<u8>)> {
    (0..3u32)
        .map(|cpu| {
            let records = (0..500).map(|n| {
                let time = 1_000 * MS + u64::from(n * 3 + cpu) * 1000;
                let record = match n % 3 {
                    0 => tick(42, n, 16),
                    1 => text(43, 0xffff_ffff_8100_0110, &format!("message {n}")),
                    _ => switch(("worker", 42), ("idle task", 0)),
                };
                (time, record)
            });
            (cpu, pages(4096, records))
        })
        .collect()
}

#[test]
fn report_shows_every_event_as_it_was_written() {
    for compression in COMPRESSIONS {
        let scratch = Scratch::new();
        let path = scratch.file("t.dat", setup(compression), &mixed());
        let lines = squeezed(&path, &["-t"]);
        assert_eq!(lines.len(), 1500);
        assert_eq!(lines[0], "worker-42 [000] 1.000000000: tick: seq=0 len=16");
        assert_eq!(lines[3], "two words-43 [000] 1.000003000: text: at second_function+0x10 text=message 1");
        assert!(
            lines[6]
                .starts_with("worker-42 [000] 1.000006000: sched_switch: worker:42 [120] S ==> idle task:0")
        );
        let raw = squeezed(&path, &["-R", "-t"]);
        assert_eq!(raw.len(), 1500);
        assert_eq!(raw[0], "worker-42 [000] 1.000000000: tick: seq=0 len=16");
        assert!(raw[3].ends_with("text: ip=second_function+0x10 text=message 1"), "{}", raw[3]);
        // Times go up and every CPU is there in turn.
        assert!((0..1500).all(|n| lines[n].contains(&format!("[00{}]", n % 3))), "{compression:?}");
        assert_eq!(trace_cmd(&["report", "-i", str(&path), "--ts-check"]).lines().count(), 1501);
    }
}

#[test]
fn dump_validates_and_lists_everything() {
    for compression in COMPRESSIONS {
        let scratch = Scratch::new();
        let path = scratch.file("t.dat", setup(compression), &mixed());
        trace_cmd(&["dump", "-v", "-i", str(&path)]);
        let all = trace_cmd(&["dump", "--all", "-i", str(&path)]);
        for part in [
            "\"page layout\"",
            "\"ftrace event formats\"",
            "\"event formats\"",
            "\"kernel symbols\"",
            "\"printk formats\"",
            "\"task names\"",
            "\"options\"",
            "\"trace data\"",
            "\"strings\"",
            "[Events format, 2 systems]",
            "[Option CPUCOUNT, 4 bytes]",
            "[Option BUFFER, ",
            "tracer-agent under test",
        ] {
            assert!(all.contains(part), "{compression:?}: no {part} in\n{all}");
        }
        assert!(trace_cmd(&["dump", "--kallsyms", "-i", str(&path)]).contains("second_function"));
        assert!(trace_cmd(&["dump", "--cmd-lines", "-i", str(&path)]).contains("43 two words"));
        assert!(trace_cmd(&["dump", "--clock", "-i", str(&path)]).contains("[mono]"));
    }
}

#[test]
fn converts_to_version_6_and_back() {
    for compression in COMPRESSIONS {
        let scratch = Scratch::new();
        let path = scratch.file("t.dat", setup(compression), &mixed());
        let original = report(&path, &["-t", "-R"]);
        let (old, new) = (scratch.path("6.dat"), scratch.path("7.dat"));
        trace_cmd(&["convert", "-i", str(&path), "-o", str(&old), "--file-version", "6"]);
        assert_eq!(report(&old, &["-t", "-R"]), original);
        for packed in ["none", "zstd"] {
            trace_cmd(&[
                "convert",
                "-i",
                str(&old),
                "-o",
                str(&new),
                "--file-version",
                "7",
                "--compression",
                packed,
            ]);
            assert_eq!(report(&new, &["-t", "-R"]), original, "{compression:?} by 6 to {packed}");
            let direct = scratch.path("direct.dat");
            trace_cmd(&["convert", "-i", str(&path), "-o", str(&direct), "--compression", packed]);
            assert_eq!(report(&direct, &["-t", "-R"]), original, "{compression:?} to {packed}");
        }
    }
}

#[test]
fn splits_into_parts_that_make_the_whole() {
    for compression in COMPRESSIONS {
        let scratch = Scratch::new();
        let path = scratch.file("t.dat", setup(compression), &mixed());
        let part = scratch.path("part.dat");
        trace_cmd(&["split", "-i", str(&path), "-o", str(&part), "1.000000", "1.000750"]);
        let part = if part.exists() { part } else { scratch.path("part.dat.1") };
        let lines = report(&part, &["-t", "-R"]);
        assert!(lines.len() > 600 && lines.len() < 900, "{compression:?}: {}", lines.len());
        // This trace-cmd repeats the first event of each CPU when it splits, whoever wrote the file.
        let mut once = lines.clone();
        once.dedup();
        assert_eq!(lines.len() - once.len(), 3);
        assert_eq!(once, report(&path, &["-t", "-R"])[..once.len()]);
    }
}

#[test]
fn hist_reads_the_file() {
    for compression in COMPRESSIONS {
        let scratch = Scratch::new();
        let path = scratch.file("t.dat", setup(compression), &mixed());
        let hist = trace_cmd(&["hist", "-i", str(&path)]);
        for (share, events) in [("%33.40 (43) two words", "text #501"), ("%33.40 (42) worker", "tick #501")] {
            assert!(squeeze(&hist).contains(&format!("{share} {events}")), "{compression:?}: {hist}");
        }
    }
}

#[test]
fn options_are_shown() {
    for compression in COMPRESSIONS {
        let scratch = Scratch::new();
        let path = scratch.file("t.dat", setup(compression), &mixed());
        assert!(trace_cmd(&["report", "-i", str(&path), "--stat"]).contains("entries: 77"));
        assert!(trace_cmd(&["report", "-i", str(&path), "--uname"]).contains("Linux test 6.18.0 x86_64"));
        assert!(trace_cmd(&["report", "-i", str(&path), "--version"]).contains("tracer-agent under test"));
        let ticks = trace_cmd(&["report", "-F", "tick:seq < 30", "-i", str(&path)]);
        assert_eq!((ticks.matches("tick:").count(), ticks.matches("text:").count()), (30, 0), "{ticks}");
        let cpus = trace_cmd(&["report", "-i", str(&path), "--cpus"]);
        assert_eq!(cpus.lines().filter(|line| line.trim().parse::<u32>().is_ok()).count(), 3, "{cpus}");
    }
}

#[test]
fn offset_and_date_move_the_time() {
    let scratch = Scratch::new();
    let records = || pages(4096, [(5_000_000_000, tick(42, 1, 16))]);
    for (name, option, time) in [
        ("offset.dat", FileOption::Offset { nanos: 1_700_000_000_000_000_001 }, "1700000005.000000001:"),
        ("date.dat", FileOption::Date { micros: 1_600_000_000_000_007 }, "1600000005.000007000:"),
    ] {
        let mut writer = scratch.writer(name, Setup::default());
        writer.option(&option).unwrap();
        let mut top = writer.begin_buffer(Buffer { name: "", clock: "mono", page_size: 4096 }).unwrap();
        top.write_cpu(0, records().as_slice()).unwrap();
        top.finish().unwrap();
        writer.finish().unwrap();
        let lines = squeezed(&scratch.path(name), &["-t"]);
        assert_eq!(lines, [format!("worker-42 [000] {time} tick: seq=1 len=16")]);
    }
}

#[test]
fn every_option_is_survived() {
    use tracedat::option::{Guest, GuestCpu, ProcMap, ProcMaps, TimeShift, TimeShiftSample};
    for compression in COMPRESSIONS {
        let scratch = Scratch::new();
        let mut writer = scratch.writer("t.dat", setup(compression));
        let sample = TimeShiftSample { time: 1, offset: 0, scaling: 1, fraction: 0 };
        let map = ProcMap { start: 0x1000, end: 0x2000, path: "/lib/lib c.so".to_owned() };
        for option in [
            FileOption::Hook("sched:sched_switch,next_pid/sched:sched_switch,prev_pid".to_owned()),
            FileOption::CpuCount(8),
            FileOption::ProcMaps(ProcMaps { pid: 42, name: "worker".to_owned(), maps: vec![map] }),
            FileOption::TimeShift(TimeShift { peer: 9, flags: 0, cpus: vec![vec![sample]; 2] }),
            FileOption::Guest(Guest {
                name: "vm".to_owned(),
                trace_id: 3,
                cpus: vec![GuestCpu { cpu: 0, pid: 42 }],
            }),
            FileOption::LastBootInfo { buffer: String::new(), text: "0 [kernel]".to_owned() },
            FileOption::Unknown { id: layout::OptionId(0x7abc), bytes: b"{\"lost\":1}".to_vec() },
        ] {
            writer.option(&option).unwrap();
        }
        let mut top = writer.begin_buffer(Buffer { name: "", clock: "mono", page_size: 4096 }).unwrap();
        for (cpu, pages) in mixed() {
            top.write_cpu(cpu, pages.as_slice()).unwrap();
        }
        top.finish().unwrap();
        // An option that is known only when the data are written.
        writer.option(&FileOption::CpuStat("CPU: 2\nentries: 4711\n".to_owned())).unwrap();
        writer.finish().unwrap();
        let path = scratch.path("t.dat");
        let output = crate::common::run(&["report", "-i", str(&path), "--stat"]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("cpus=8") && text.contains("entries: 4711"), "{text}");
        assert_eq!(text.matches("seq=").count(), 0, "statistics come without events");
        let output = crate::common::run(&["report", "-i", str(&path)]);
        assert_eq!(String::from_utf8_lossy(&output.stdout).matches("tick:").count(), 501, "{output:?}");
    }
}

#[test]
fn sparse_cpus() {
    for compression in COMPRESSIONS {
        let scratch = Scratch::new();
        let one = |cpu: u32| (cpu, pages(4096, [(u64::from(cpu) * MS, tick(42, cpu, 16))]));
        // Out of order, with gaps, and one without data.
        let path = scratch.file("t.dat", setup(compression), &[one(130), one(2), (3, Vec::new()), one(64)]);
        let lines = squeezed(&path, &["-t"]);
        let expected: Vec<_> = [2u32, 64, 130]
            .map(|cpu| format!("worker-42 [{cpu:03}] 0.{cpu:03}000000: tick: seq={cpu} len=16"))
            .to_vec();
        assert_eq!(lines, expected, "{compression:?}");
        trace_cmd(&["dump", "-v", "-i", str(&path)]);
        let old = scratch.path("6.dat");
        trace_cmd(&["convert", "-i", str(&path), "-o", str(&old), "--file-version", "6"]);
        assert_eq!(squeezed(&old, &["-t"]), expected, "{compression:?} as version 6");
    }
}

#[test]
fn several_buffers() {
    for compression in COMPRESSIONS {
        let scratch = Scratch::new();
        let mut writer = scratch.writer("t.dat", setup(compression));
        // The middle one has larger pages than the file; the last comes in two parts.
        let parts = [("", 4096, 1), ("big", 16384, 2), ("parts", 4096, 3), ("parts", 4096, 4)];
        for (name, page_size, seq) in parts {
            let mut buffer = writer.begin_buffer(Buffer { name, clock: "mono", page_size }).unwrap();
            let records = (0..400).map(|n| (u64::from(seq) * 1000 * MS + n * 1000, tick(42, seq, 100)));
            buffer.write_cpu(1, pages(page_size, records).as_slice()).unwrap();
            buffer.finish().unwrap();
        }
        writer.finish().unwrap();
        let path = scratch.path("t.dat");
        trace_cmd(&["dump", "-v", "-i", str(&path)]);
        let lines = squeezed(&path, &[]);
        assert_eq!(lines.len(), 1600, "{compression:?}");
        for (name, _, seq) in parts {
            let shown = lines
                .iter()
                .filter(|line| line.contains(&format!("seq={seq} ")))
                .filter(|line| name.is_empty() || line.starts_with(&format!("{name}:")));
            assert_eq!(shown.count(), 400, "{compression:?} {name} {seq}: {:?}", &lines[..2]);
        }
    }
}

#[test]
fn named_buffers_alone() {
    for compression in COMPRESSIONS {
        let scratch = Scratch::new();
        let mut writer = scratch.writer("t.dat", setup(compression));
        let mut buffer =
            writer.begin_buffer(Buffer { name: "only", clock: "mono", page_size: 4096 }).unwrap();
        buffer.write_cpu(1, pages(4096, [(MS, tick(42, 1, 100))]).as_slice()).unwrap();
        buffer.finish().unwrap();
        writer.finish().unwrap();
        let path = scratch.path("t.dat");
        let lines = squeezed(&path, &[]);
        assert_eq!(lines, ["only: worker-42 [001] 0.001000: tick: seq=1 len=100"], "{compression:?}");
        trace_cmd(&["dump", "-v", "-i", str(&path)]);
    }
}

#[test]
fn no_events_at_all() {
    for compression in COMPRESSIONS {
        let scratch = Scratch::new();
        let path = scratch.file("t.dat", setup(compression), &[]);
        let text = trace_cmd(&["report", "-i", str(&path)]);
        assert!(text.contains("cpus=1"), "{text}");
        assert!(report(&path, &[]).is_empty());
        trace_cmd(&["dump", "-v", "-i", str(&path)]);
        assert!(trace_cmd(&["report", "-i", str(&path), "--uname"]).contains("Linux test"));
    }
}

#[test]
fn lost_events_are_shown_with_their_number() {
    for compression in COMPRESSIONS {
        let scratch = Scratch::new();
        let mut builder = page::PageBuilder::new(4096, Setup::default().endian).unwrap();
        let mut data = Vec::new();
        for (time, lost) in [(1, None), (2, Some(77)), (3, None), (4, Some(0))] {
            if let Some(lost) = lost {
                builder.missed(lost);
            }
            assert_eq!(builder.push(time * MS, &tick(42, time as u32, 16)), Ok(page::Push::Stored));
            data.extend_from_slice(builder.finish().unwrap());
        }
        let path = scratch.file("t.dat", setup(compression), &[(0, data)]);
        let lines = squeezed(&path, &[]);
        let expected = [
            "worker-42 [000] 0.001000: tick: seq=1 len=16",
            "CPU:0 [77 EVENTS DROPPED]",
            "worker-42 [000] 0.002000: tick: seq=2 len=16",
            "worker-42 [000] 0.003000: tick: seq=3 len=16",
            "CPU:0 [EVENTS DROPPED]",
            "worker-42 [000] 0.004000: tick: seq=4 len=16",
        ];
        assert_eq!(lines, expected, "{compression:?}");
    }
}

#[test]
fn long_silences() {
    for compression in COMPRESSIONS {
        let scratch = Scratch::new();
        // Around the 27 bits of a delta, and far beyond.
        let gaps = [0, (1 << 27) - 1, 1 << 27, (1 << 27) + 1, 134 * MS, 135 * MS, 3_600_000 * MS, 1 << 50];
        let times: Vec<u64> =
            gaps.iter().scan(7, |time, gap| Some(*time + gap).inspect(|next| *time = *next)).collect();
        let records = times.iter().zip(0..).map(|(time, seq)| (*time, tick(42, seq, 16)));
        let path = scratch.file("t.dat", setup(compression), &[(0, pages(4096, records))]);
        let expected: Vec<_> = times
            .iter()
            .enumerate()
            .map(|(seq, time)| {
                let (seconds, nanos) = (time / 1_000_000_000, time % 1_000_000_000);
                format!("worker-42 [000] {seconds}.{nanos:09}: tick: seq={seq} len=16")
            })
            .collect();
        assert_eq!(squeezed(&path, &["-t"]), expected, "{compression:?}");
    }
}

#[test]
fn records_of_all_sizes_on_pages_of_all_sizes() {
    for compression in COMPRESSIONS {
        for page_size in [4096u32, 8192, 16384, 32768, 65536, 524_288, 1_048_576] {
            let scratch = Scratch::new();
            // `__data_loc` of a record addresses 64 KiB.
            let max = (page_size as usize - 24).min(65536 - 24);
            let lengths: Vec<usize> = if page_size == 4096 {
                (16..=max).collect()
            } else {
                (16..300).chain((300..max).step_by(997)).chain([max - 1, max]).collect()
            };
            let records =
                lengths.iter().zip(0..).map(|(len, seq)| (u64::from(seq) * 1000, tick(42, seq, *len)));
            let setup = Setup { page_size, ..setup(compression) };
            let path = scratch.file("t.dat", setup, &[(0, pages(page_size, records))]);
            let lines = squeezed(&path, &["-t"]);
            assert_eq!(lines.len(), lengths.len(), "{compression:?} {page_size}");
            for (seq, (line, len)) in lines.iter().zip(&lengths).enumerate() {
                let end = format!("0.{:09}: tick: seq={seq} len={len}", seq * 1000);
                assert!(line.ends_with(&end), "{compression:?} {page_size}: {line} is not {end}");
            }
            trace_cmd(&["dump", "-v", "-i", str(&path)]);
        }
    }
}

#[test]
fn text_that_fills_the_largest_record() {
    for compression in COMPRESSIONS {
        let scratch = Scratch::new();
        let long = "x".repeat(4072 - 21);
        let record = text(42, 0, &long);
        assert_eq!(record.len(), 4072);
        let path = scratch.file("t.dat", setup(compression), &[(0, pages(4096, [(MS, record)]))]);
        assert!(report(&path, &[])[0].ends_with(&format!("text={long}")));
    }
}

#[test]
fn spools_are_copied_as_they_are() {
    for compression in COMPRESSIONS {
        let scratch = Scratch::new();
        let setup = setup(compression);
        let mut writer = scratch.writer("t.dat", setup);
        let mut top = writer.begin_buffer(Buffer { name: "", clock: "mono", page_size: 4096 }).unwrap();
        for (cpu, pages) in mixed() {
            // What a reader thread does while it records.
            let mut compressor = ChunkCompressor::new(compression, setup.endian).unwrap();
            let mut spool = tempfile::tempfile().unwrap();
            let mut chunks = 0;
            for run in pages.chunks(4 * 4096) {
                spool.write_all(compressor.compress(run).unwrap()).unwrap();
                chunks += 1;
            }
            spool.seek(SeekFrom::Start(0)).unwrap();
            top.copy_cpu(cpu, chunks, |out, offset| {
                if cpu == 1 {
                    // Without using the output's position, as copy_file_range with an offset does.
                    let mut bytes = Vec::new();
                    spool.read_to_end(&mut bytes)?;
                    std::os::unix::fs::FileExt::write_all_at(out, &bytes, offset)?;
                    Ok(bytes.len() as u64)
                } else {
                    std::io::copy(&mut spool, out)
                }
            })
            .unwrap();
        }
        top.copy_cpu(7, 0, |_, _| unreachable!("nothing to copy")).unwrap();
        top.finish().unwrap();
        writer.finish().unwrap();
        let direct = scratch.file("direct.dat", setup, &mixed());
        let path = scratch.path("t.dat");
        assert_eq!(report(&path, &["-R", "-t"]), report(&direct, &["-R", "-t"]), "{compression:?}");
        assert_eq!(report(&path, &[]).len(), 1500);
        trace_cmd(&["dump", "-v", "-i", str(&path)]);
    }
}

#[test]
fn many_chunks_per_cpu() {
    let scratch = Scratch::new();
    let records = (0..40_000u32).map(|seq| (u64::from(seq) * 1000, tick(42, seq, 40)));
    let path = scratch.file("t.dat", setup(Compression::default()), &[(0, pages(4096, records))]);
    let lines = squeezed(&path, &[]);
    assert_eq!(lines.len(), 40_000);
    assert!(lines.iter().enumerate().all(|(seq, line)| line.ends_with(&format!("tick: seq={seq} len=40"))));
    let file = std::fs::metadata(&path).unwrap().len();
    assert!(file < 1_000_000, "{file} bytes are not compressed");
}

#[test]
fn files_of_two_machines_merge() {
    let scratch = Scratch::new();
    let path = scratch.file("a.dat", setup(Compression::None), &[(0, pages(4096, [(MS, tick(42, 1, 16))]))]);
    let other = scratch.file(
        "b.dat",
        setup(Compression::default()),
        &[(0, pages(4096, [(2 * MS, tick(42, 2, 16))]))],
    );
    let text = trace_cmd(&["report", "-i", str(&path), "-i", str(&other)]);
    assert!(text.find("seq=1").unwrap() < text.find("seq=2").unwrap(), "{text}");
}

#[test]
fn metadata_that_were_not_given_are_not_missed() {
    for compression in COMPRESSIONS {
        let scratch = Scratch::new();
        let (path, part, old) = (scratch.path("t.dat"), scratch.path("part.dat"), scratch.path("6.dat"));
        let setup = setup(compression);
        let mut writer = Writer::create(std::fs::File::create_new(&path).unwrap(), setup).unwrap();
        let header_page = layout::header_page_text(setup.page_size);
        writer.section(Section::header_info(setup.endian, &header_page, "").unwrap()).unwrap();
        let tick = crate::common::tick_format();
        let systems = [EventSystem { name: "demo", formats: &[&tick] }];
        writer.section(Section::event_formats(setup.endian, &systems).unwrap()).unwrap();
        let mut top = writer.begin_buffer(Buffer { name: "", clock: "mono", page_size: 4096 }).unwrap();
        let records = (1..4).map(|seq| (u64::from(seq) * MS, crate::common::tick(7, seq, 16)));
        top.write_cpu(0, pages(4096, records).as_slice()).unwrap();
        top.finish().unwrap();
        writer.finish().unwrap();
        let lines = squeezed(&path, &[]);
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[2], "<...>-7 [000] 0.003000: tick: seq=3 len=16", "{compression:?}");
        trace_cmd(&["convert", "-i", str(&path), "-o", str(&old), "--file-version", "6"]);
        assert_eq!(squeezed(&old, &[]), lines, "{compression:?}");
        trace_cmd(&["split", "-i", str(&path), "-o", str(&part), "0.0025", "1"]);
        assert_eq!(squeezed(&scratch.path("part.dat.1"), &[]), lines[2..], "{compression:?}");
    }
}
