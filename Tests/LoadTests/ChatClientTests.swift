import CChat
import Glibc
import Testing

@testable import LoadTester

@Suite("The bare clients of a chat server")
struct ChatClientTests {
    // MARK: Frames

    @Test("A client's frame is masked, and the same without its mask", arguments: [0, 1, 125, 126, 4_096])
    func masking(length: Int) {
        let payload = (0..<length).map { UInt8(truncatingIfNeeded: $0) }
        var frame = [UInt8](repeating: 0, count: length + Int(cchat_header_room))
        let count = cchat_put_frame(&frame, CInt(cchat_text.rawValue), payload, length, 0x1234_5678)
        let header = length < 126 ? 6 : 8
        #expect(count == header + length)
        #expect(frame[0] == 0x81 && frame[1] & 0x80 == 0x80)
        let key = frame[(header - 4)..<header]
        #expect(Array(key) == [0x78, 0x56, 0x34, 0x12])
        let plain = (0..<length).map { frame[header + $0] ^ key[header - 4 + $0 % 4] }
        #expect(plain == payload)
    }

    private func take(_ bytes: [UInt8]) -> (result: CInt, frame: cchat_frame) {
        var frame = cchat_frame()
        return (cchat_take_frame(bytes, bytes.count, &frame), frame)
    }

    @Test("A server's frame is there when its last byte is", arguments: [0, 5, 125, 126, 70_000])
    func taking(length: Int) {
        var header: [UInt8] = [0x81]
        switch length {
        case ..<126: header.append(UInt8(length))
        case ..<65_536: header += [126, UInt8(length >> 8), UInt8(length & 0xFF)]
        default:
            header += [
                127, 0, 0, 0, 0, 0, UInt8(length >> 16), UInt8(length >> 8 & 0xFF), UInt8(length & 0xFF),
            ]
        }
        let whole = header + [UInt8](repeating: 7, count: length)
        for count in [0, 1, header.count - 1, whole.count - 1] where count < whole.count {
            #expect(take(Array(whole[..<count])).result == 0)
        }
        let (result, frame) = take(whole + [0x89])
        #expect(result == 1)
        #expect(frame.length == length && frame.whole == whole.count && frame.opcode == 1)
    }

    @Test(
        "What a server may not send is none",
        arguments: [[0x01, 0], [0x80 | 0x41, 0], [0x81, 0x80], [0x81, 127, 0, 0, 1, 0, 0, 0, 0, 0]]
            as [[UInt8]])
    func refusing(bytes: [UInt8]) {
        #expect(take(bytes).result == -1)
    }

    // MARK: Objects

    private func member(_ object: String, _ name: String) -> String? {
        let bytes = Array(object.utf8CString)
        var length = 0
        let value = bytes.withUnsafeBufferPointer { buffer in
            cchat_member(buffer.baseAddress, buffer.count - 1, name, &length).map {
                String(decoding: UnsafeRawBufferPointer(start: $0, count: length), as: UTF8.self)
            }
        }
        return value
    }

    @Test("Members are found in whatever order and whatever they are")
    func members() {
        let object = #" { "a" : "x,\"}" , "b":[1,{"c":"]"}],"number": 42 ,"c":{"d":1},"e":null} "#
        #expect(member(object, "a") == #"x,\"}"#)
        #expect(member(object, "b") == #"[1,{"c":"]"}]"#)
        #expect(member(object, "c") == #"{"d":1}"#)
        #expect(member(object, "e") == "null")
        #expect(member(object, "d") == nil)
        #expect(cchat_number(object, object.utf8.count, "number") == 42)
        #expect(cchat_number(object, object.utf8.count, "a") == -1)
        #expect(cchat_number(object, object.utf8.count, "z") == -1)
    }

    @Test("What ends too early has no members")
    func truncated() {
        let object = #"{"a":"x","b":[1,{"c":"]"}],"n":7}"#
        for count in 0..<object.utf8.count {
            #expect(cchat_number(object, count, "n") == -1)
            _ = cchat_number(object, count, "zz")
        }
        #expect(cchat_number(object, object.utf8.count, "n") == 7)
    }

    // MARK: Judging

    /// Two rooms of two, in the second of which each has said three things that everybody has heard.
    private final class Judged {
        let judge = cchat_judge_make(2, 2)

        init(_ heard: (Judged) -> Void) {
            for _ in 1...3 { for sender in 2...3 { _ = cchat_judge_say(judge, sender) } }
            heard(self)
        }

        deinit { cchat_judge_free(judge) }

        func hear(_ receiver: Int, _ sender: Int, _ sequence: UInt64, _ number: UInt64) {
            cchat_judge_hear(judge, receiver, sender, sequence, number)
        }

        func hear(_ receiver: Int, but numbers: Set<UInt64> = []) {
            for number in UInt64(1)...6 where !numbers.contains(number) {
                hear(receiver, number % 2 == 1 ? 2 : 3, (number + 1) / 2, number)
            }
        }

        /// Lost, reordered, duplicate, irregular.
        var faults: [UInt64] {
            let verdict = cchat_judge_tell(judge)
            return [verdict.lost, verdict.reordered, verdict.duplicate, verdict.irregular]
        }
    }

    @Test("Everything heard once and in order is right")
    func right() {
        let judged = Judged { for receiver in 2...3 { $0.hear(receiver) } }
        #expect(judged.faults == [0, 0, 0, 0])
        let verdict = cchat_judge_tell(judged.judge)
        #expect(verdict.said == 6 && verdict.heard == 12)
    }

    @Test("What one of them did not hear is lost, also the last, and also all of it")
    func lost() {
        for number in UInt64(1)...6 {
            let judged = Judged {
                $0.hear(2)
                $0.hear(3, but: [number])
            }
            #expect(judged.faults == [1, 0, 0, 0], "\(number)")
        }
        #expect(Judged { $0.hear(2) }.faults == [6, 0, 0, 0])
    }

    @Test("What comes late is reordered, not lost")
    func reordered() {
        let bySender = Judged {
            $0.hear(2)
            $0.hear(3, but: [1])
            $0.hear(3, 2, 1, 1)
        }
        #expect(bySender.faults == [0, 1, 0, 0])
        let amongSenders = Judged {
            $0.hear(2)
            $0.hear(3, but: [5, 6])
            $0.hear(3, 3, 3, 6)
            $0.hear(3, 2, 3, 5)
        }
        #expect(amongSenders.faults == [0, 1, 0, 0])
    }

    @Test("What comes twice is a duplicate")
    func duplicate() {
        let judged = Judged {
            for receiver in 2...3 { $0.hear(receiver) }
            $0.hear(3, 2, 3, 5)
            $0.hear(3, 2, 3, 7)
        }
        #expect(judged.faults == [0, 0, 2, 0])
    }

    @Test("What nobody said, and numbers that do not fit, are irregular")
    func irregular() {
        let strange = Judged {
            for receiver in 2...3 { $0.hear(receiver) }
            $0.hear(2, 2, 4, 7)
            $0.hear(2, 2, 0, 7)
            $0.hear(2, 4, 1, 7)
            $0.hear(2, 0, 1, 7)
            $0.hear(0, 2, 1, 7)
        }
        #expect(strange.faults == [0, 0, 0, 5])
        let gap = Judged {
            for receiver in 2...3 {
                $0.hear(receiver, but: [6])
                $0.hear(receiver, 3, 3, 8)
            }
        }
        #expect(gap.faults == [0, 0, 0, 2])
        let different = Judged {
            $0.hear(2)
            $0.hear(3, but: [6])
            $0.hear(3, 3, 3, 7)
        }
        #expect(different.faults[3] > 0)
    }
}

/// Servers that are wrong must be noticed.
@Suite("Chats with a server that is wrong", .serialized, .timeLimit(.minutes(10)))
struct FalseChatTests {
    private func stir(_ fault: FalseChat.Fault) throws -> cchat_verdict {
        let server = try FalseChat(fault)
        let crowd = cchat_crowd_make(7)
        defer { cchat_crowd_free(crowd) }
        try #require(cchat_join(crowd, server.port, cchat_stir_room, 0, 16, 4) == 0)
        cchat_be_patient(crowd, 2_000)
        var (progress, verdict) = (cchat_progress(), cchat_verdict())
        try #require(cchat_stir(crowd, 0, 16, 4, 1_000, 2_000_000, &progress, &verdict) == 0)
        #expect(progress.said == verdict.said)
        return verdict
    }

    @Test("What is right is found right")
    func none() throws {
        let verdict = try stir(.none)
        #expect(verdict.said == 1_000 && verdict.heard == 4_000 && verdict.lost == 0)
        #expect(verdict.reordered == 0 && verdict.duplicate == 0 && verdict.irregular == 0)
    }

    @Test("A message that one does not hear, or nobody, is lost")
    func drops() throws {
        #expect(try stir(.drops).lost == 1)
        #expect(try stir(.swallows).lost == 4)
    }

    @Test("Two messages the other way round are noticed")
    func swaps() throws {
        let verdict = try stir(.swaps)
        #expect(verdict.reordered == 1 && verdict.lost == 0)
    }

    @Test("A message that comes twice is noticed")
    func repeats() throws {
        let verdict = try stir(.repeats)
        #expect(verdict.duplicate == 1 && verdict.lost == 0)
    }

    @Test("Another number for one of the receivers is noticed")
    func misnumbers() throws {
        #expect(try stir(.misnumbers).irregular > 0)
    }

    @Test("Other words than were said are irregular, and what was said is lost")
    func garbles() throws {
        let verdict = try stir(.garbles)
        #expect(verdict.irregular == 1 && verdict.lost == 1)
    }

    @Test("A call that is not heard is lost, and talk that is not heard as well")
    func callsAndTalk() throws {
        let server = try FalseChat(.swallows)
        let crowd = cchat_crowd_make(7)
        defer { cchat_crowd_free(crowd) }
        cchat_be_patient(crowd, 2_000)
        try #require(cchat_join(crowd, server.port, cchat_pair_room, 0, 2, 2) == 0)
        var losses: [Int] = []
        for call in 1...FalseChat.wrongMessage + 1 {
            var sample = cchat_sample()
            try #require(cchat_call(crowd, 0, 1, &sample) == 0)
            if sample.latency < 0 { losses.append(call) }
        }
        #expect(losses == [FalseChat.wrongMessage])
        for (fault, lost) in [
            (FalseChat.Fault.none, 0), (.drops, 1), (.swallows, 3), (.repeats, 0), (.garbles, 1),
        ] {
            #expect(try talk(fault) == lost, "\(fault)")
        }
    }

    @Test("In talk, what comes twice does not make up for what does not come")
    func doubles() throws {
        #expect(try talk(.doubles) == 1)
    }

    private func talk(_ fault: FalseChat.Fault) throws -> Int {
        let server = try FalseChat(fault)
        let crowd = cchat_crowd_make(7)
        defer { cchat_crowd_free(crowd) }
        cchat_be_patient(crowd, 2_000)
        try #require(cchat_join(crowd, server.port, cchat_talk_room, 0, 6, 3) == 0)
        var result = cchat_talk()
        try #require(cchat_talk(crowd, 0, 6, 3, 1_000_000_000, &result) == 0)
        #expect(result.messages > UInt64(FalseChat.wrongMessage))
        return Int(result.lost)
    }
}
