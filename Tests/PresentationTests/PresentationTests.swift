import Presentation
import Testing

@Suite("Tables")
struct TableTests {
    private func table() -> Table {
        var table = Table([
            .init("CLIENT", shrinks: true), .init("PID", .right), .init("NOTE", shrinks: true),
        ])
        table.add(["org.example.phone.alice", "7", "ok"])
        table.add(["b", "12345", "a rather long remark about it"])
        return table
    }

    @Test("Columns are as wide as their longest cell; numbers stand on the right")
    func natural() {
        #expect(
            table().lines(width: nil) == [
                "CLIENT                     PID  NOTE",
                "org.example.phone.alice      7  ok",
                "b                        12345  a rather long remark about it",
            ])
    }

    @Test("No line is longer than the terminal, whatever its width", arguments: 0...90)
    func fits(width: Int) {
        let lines = table().lines(width: width)
        #expect(lines.count == 3)
        #expect(lines.allSatisfy { $0.count <= width })
    }

    @Test("A cut is marked, and columns that must not shrink stay whole")
    func cut() {
        let lines = table().lines(width: 40)
        #expect(lines[1].contains("…"))
        #expect(lines[1].contains("      7"))
        #expect(lines[2].contains("12345"))
    }

    @Test("A less important column is left out before names become unreadable, an empty one first")
    func leaving() {
        var table = Table([
            .init("CLIENT", shrinks: true), .init("UID", .right, leaves: 2), .init("AVOIDED", leaves: 1),
        ])
        table.add(["org.example.phone.alice", "1000", "-"])
        #expect(table.lines(width: 40)[0] == "CLIENT                    UID  AVOIDED")
        #expect(table.lines(width: 30) == ["CLIENT                    UID", "org.example.phone.alice  1000"])
        #expect(table.lines(width: 21) == ["CLIENT", "org.exampl…hone.alice"])
    }

    @Test("A name cannot move the cursor")
    func controls() {
        var table = Table([.init("A")])
        table.add(["x\u{1B}[2Jy\nz\u{202E}"])
        #expect(table.lines(width: nil)[1] == #"x\u001b[2Jy\u000az\u202e"#)
    }

    @Test("Rows with too few or too many cells")
    func ragged() {
        var table = Table([.init("A"), .init("B")])
        table.add(["1"])
        table.add(["1", "2", "3"])
        #expect(table.lines(width: nil) == ["A  B", "1", "1  2"])
    }
}

@Suite("Colours and lines")
struct PaintTests {
    @Test(
        "Colours are for terminals that support them, unless NO_COLOR is set",
        arguments: [
            (true, nil, "xterm", true), (true, "", "xterm", true), (true, "1", "xterm", false),
            (true, nil, "dumb", false), (true, nil, "", false), (true, nil, nil, false),
            (false, nil, "xterm", false),
        ] as [(Bool, String?, String?, Bool)])
    func rule(isTerminal: Bool, noColor: String?, terminal: String?, isOn: Bool) {
        #expect(Paint(isTerminal: isTerminal, noColor: noColor, terminal: terminal).isOn == isOn)
    }

    @Test("Lines are broken at spaces, and words only where necessary")
    func wrapping() {
        #expect(wrapped("one two three", to: 7) == ["one two", "three"])
        #expect(wrapped("onetwothree", to: 4) == ["onet", "woth", "ree"])
        #expect(wrapped("a /very/long/path b", to: 4, breaksWords: false) == ["a", "/very/long/path", "b"])
        #expect(wrapped("", to: 4) == [""])
    }
}

@Suite("Quantities for people")
struct HumanTests {
    @Test(
        "Durations",
        arguments: [
            (Duration.zero, "0s"), (.microseconds(7), "7us"), (.milliseconds(380), "380ms"),
            (.milliseconds(4_250), "4.2s"), (.seconds(59), "59s"), (.seconds(60), "1m"),
            (.seconds(725), "12m 5s"),
            (.seconds(13_200), "3h 40m"), (.seconds(8 * 86_400 + 7_300), "8d 2h"),
            (.milliseconds(-1_500), "-1.5s"),
        ])
    func durations(duration: Duration, text: String) {
        #expect(Human.duration(duration) == text)
    }

    @Test(
        "Bytes",
        arguments: [
            (UInt64(0), "0 B"), (1_023, "1023 B"), (1_024, "1.0 KiB"), (11_744_051, "11.1 MiB"),
            (.max, "1677721.5 TiB"),
        ])
    func bytes(count: UInt64, text: String) {
        #expect(Human.bytes(count) == text)
    }
}

@Suite("JSON and base 64")
struct EncodingTests {
    @Test("Values of every kind")
    func values() {
        let value: JSON = [
            "n": .null, "t": true, "i": .integer(-3), "u": .unsigned(.max), "d": .number(0.5),
            "nan": .number(.nan), "s": "a\"b\\c\n\u{1}é🔔", "a": [.integer(1), "x"], "o": [:],
        ]
        #expect(
            value.text == #"{"n":null,"t":true,"i":-3,"u":18446744073709551615,"d":0.5,"nan":null,"#
                + #""s":"a\"b\\c\n\u0001é🔔","a":[1,"x"],"o":{}}"#)
    }

    @Test("JSON has no effect on a terminal")
    func controlCharacters() {
        let text = "\u{7F}\u{85}\u{9B}\u{200F}\u{2028}\u{2029}\u{202E}\u{2066}\u{E0001}ü"
        #expect(
            JSON.string(text).text
                == #""\u007f\u0085\u009b\u200f\u2028\u2029\u202e\u2066\udb40\udc01ü""#)
    }
}
