import CChat
import Glibc
import Testing

@testable import LoadTester

@Suite("The minimal clients of a chat server")
struct ChatClientTests {
    // MARK: Frames

    @Test("A client's frame is masked, and the same without its mask", arguments: [0, 1, 125, 126, 4_096])
    func masking(length: Int) {
        let payload = (0..<length).map { UInt8(truncatingIfNeeded: $0) }
        var frame = [UInt8](repeating: 0, count: length + Int(cchat_max_header))
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
        "Frames that a server may not send are refused",
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

    @Test("An object that ends too early has no members")
    func truncated() {
        let object = #"{"a":"x","b":[1,{"c":"]"}],"n":7}"#
        for count in 0..<object.utf8.count {
            #expect(cchat_number(object, count, "n") == -1)
            _ = cchat_number(object, count, "zz")
        }
        #expect(cchat_number(object, object.utf8.count, "n") == 7)
    }

    // MARK: Checking deliveries

    /// Two rooms of two members; in the second, each has sent three messages that both have received.
    private final class Inspected {
        let inspect = cchat_delivery_check_make(2, 2)

        init(_ heard: (Inspected) -> Void) {
            for _ in 1...3 { for sender in 2...3 { _ = cchat_note_said(inspect, sender) } }
            heard(self)
        }

        deinit { cchat_delivery_check_free(inspect) }

        func hear(_ receiver: Int, _ sender: Int, _ sequence: UInt64, _ number: UInt64) {
            cchat_note_heard(inspect, receiver, sender, sequence, number)
        }

        func hear(_ receiver: Int, but numbers: Set<UInt64> = []) {
            for number in UInt64(1)...6 where !numbers.contains(number) {
                hear(receiver, number % 2 == 1 ? 2 : 3, (number + 1) / 2, number)
            }
        }

        /// Lost, reordered, duplicate, irregular.
        var faults: [UInt64] {
            let deliveries = cchat_delivery_check_result(inspect)
            return [deliveries.lost, deliveries.reordered, deliveries.duplicate, deliveries.irregular]
        }
    }

    @Test("Messages received once and in order are correct")
    func right() {
        let inspected = Inspected { for receiver in 2...3 { $0.hear(receiver) } }
        #expect(inspected.faults == [0, 0, 0, 0])
        let deliveries = cchat_delivery_check_result(inspected.inspect)
        #expect(deliveries.said == 6 && deliveries.heard == 12)
    }

    @Test("A message that one member did not receive is lost, even the last, and even all")
    func lost() {
        for number in UInt64(1)...6 {
            let inspected = Inspected {
                $0.hear(2)
                $0.hear(3, but: [number])
            }
            #expect(inspected.faults == [1, 0, 0, 0], "\(number)")
        }
        #expect(Inspected { $0.hear(2) }.faults == [6, 0, 0, 0])
    }

    @Test("A late message is reordered, not lost")
    func reordered() {
        let bySender = Inspected {
            $0.hear(2)
            $0.hear(3, but: [1])
            $0.hear(3, 2, 1, 1)
        }
        #expect(bySender.faults == [0, 1, 0, 0])
        let amongSenders = Inspected {
            $0.hear(2)
            $0.hear(3, but: [5, 6])
            $0.hear(3, 3, 3, 6)
            $0.hear(3, 2, 3, 5)
        }
        #expect(amongSenders.faults == [0, 1, 0, 0])
    }

    @Test("A message that arrives twice is a duplicate")
    func duplicate() {
        let inspected = Inspected {
            for receiver in 2...3 { $0.hear(receiver) }
            $0.hear(3, 2, 3, 5)
            $0.hear(3, 2, 3, 7)
        }
        #expect(inspected.faults == [0, 0, 2, 0])
    }

    @Test("Messages that no member sent, and numbers that do not fit, are irregular")
    func irregular() {
        let strange = Inspected {
            for receiver in 2...3 { $0.hear(receiver) }
            $0.hear(2, 2, 4, 7)
            $0.hear(2, 2, 0, 7)
            $0.hear(2, 4, 1, 7)
            $0.hear(2, 0, 1, 7)
            $0.hear(0, 2, 1, 7)
        }
        #expect(strange.faults == [0, 0, 0, 5])
        let gap = Inspected {
            for receiver in 2...3 {
                $0.hear(receiver, but: [6])
                $0.hear(receiver, 3, 3, 8)
            }
        }
        #expect(gap.faults == [0, 0, 0, 2])
        let different = Inspected {
            $0.hear(2)
            $0.hear(3, but: [6])
            $0.hear(3, 3, 3, 7)
        }
        #expect(different.faults[3] > 0)
    }
}

/// Faults of a server must be noticed.
@Suite("Chats with a faulty server", .serialized, .timeLimit(.minutes(40)))
struct FalseChatTests {
    private func soak(_ fault: FaultyChatServer.Fault) throws -> cchat_deliveries {
        let server = try FaultyChatServer(fault)
        let clients = cchat_clients_make(7)
        defer { cchat_clients_free(clients) }
        try #require(cchat_join(clients, server.port, cchat_soak_room, 0, 16, 4) == 0)
        cchat_set_patience(clients, 2_000)
        var (progress, deliveries) = (cchat_progress(), cchat_deliveries())
        try #require(cchat_soak(clients, 0, 16, 4, 1_000, 2_000_000, &progress, &deliveries) == 0)
        #expect(progress.said == deliveries.said)
        return deliveries
    }

    @Test("A server without a fault passes")
    func none() throws {
        let deliveries = try soak(.none)
        #expect(deliveries.said == 1_000 && deliveries.heard == 4_000 && deliveries.lost == 0)
        #expect(deliveries.reordered == 0 && deliveries.duplicate == 0 && deliveries.irregular == 0)
    }

    @Test("A message that one member or none receives is lost")
    func drops() throws {
        #expect(try soak(.drops).lost == 1)
        #expect(try soak(.swallows).lost == 4)
    }

    @Test("Two messages in the wrong order are noticed")
    func swaps() throws {
        let deliveries = try soak(.swaps)
        #expect(deliveries.reordered == 1 && deliveries.lost == 0)
    }

    @Test("A message that comes twice is noticed")
    func repeats() throws {
        let deliveries = try soak(.repeats)
        #expect(deliveries.duplicate == 1 && deliveries.lost == 0)
    }

    @Test("Another number for one of the receivers is noticed")
    func misnumbers() throws {
        #expect(try soak(.misnumbers).irregular > 0)
    }

    @Test("A changed text is irregular, and the sent one is lost")
    func garbles() throws {
        let deliveries = try soak(.garbles)
        #expect(deliveries.irregular == 1 && deliveries.lost == 1)
    }

    @Test("An unanswered call is lost, and so is a message of a throughput run")
    func callsAndTalk() throws {
        let server = try FaultyChatServer(.swallows)
        let clients = cchat_clients_make(7)
        defer { cchat_clients_free(clients) }
        cchat_set_patience(clients, 2_000)
        try #require(cchat_join(clients, server.port, cchat_pair_room, 0, 2, 2) == 0)
        var losses: [Int] = []
        for call in 1...FaultyChatServer.wrongMessage + 1 {
            var sample = cchat_sample()
            try #require(cchat_call(clients, 0, 1, &sample) == 0)
            if sample.latency < 0 { losses.append(call) }
        }
        #expect(losses == [FaultyChatServer.wrongMessage])
        for (fault, lost) in [
            (FaultyChatServer.Fault.none, 0), (.drops, 1), (.swallows, 3), (.repeats, 0), (.garbles, 1),
        ] {
            #expect(try throughput(fault) == lost, "\(fault)")
        }
    }

    @Test("In a throughput run a duplicate does not make up for a missing message")
    func doubles() throws {
        #expect(try throughput(.doubles) == 1)
    }

    private func throughput(_ fault: FaultyChatServer.Fault) throws -> Int {
        let server = try FaultyChatServer(fault)
        let clients = cchat_clients_make(7)
        defer { cchat_clients_free(clients) }
        cchat_set_patience(clients, 2_000)
        try #require(cchat_join(clients, server.port, cchat_throughput_room, 0, 6, 3) == 0)
        var result = cchat_throughput()
        try #require(cchat_measure_throughput(clients, 0, 6, 3, 1_000_000_000, &result) == 0)
        #expect(result.messages > UInt64(FaultyChatServer.wrongMessage))
        return Int(result.lost)
    }
}
