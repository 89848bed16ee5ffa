import Nightbell
import NightbellWire
import Testing

@Suite struct WakeLedgerTests {
    private func wake(_ id: UInt64, _ reasons: WakeReasons = .request) -> Wake {
        Wake(id: id, reasons: reasons, sockets: [], budget: .seconds(10), asleepFor: .seconds(1))
    }

    @Test func withoutAConsumerAWakeIsDoneAfterItsHandlers() {
        var ledger = WakeLedger()
        #expect(ledger.handled(wake(7), connection: 0) == .init(confirm: 7))
    }

    @Test func sendsNothingBetweenReadyToSuspendAndTheNextMessage() throws {
        var ledger = WakeLedger()
        let subscription = ledger.subscribe()
        let consumer = try #require(subscription)
        #expect(ledger.next(consumer).next == .wait)
        #expect(ledger.handled(wake(1), connection: 0).deliver?.id == 1)
        ledger.suspensionAnswered()
        #expect(ledger.next(consumer) == .init(.wait))
        #expect(ledger.suspensionCancelled() == 1)
        #expect(ledger.suspensionCancelled() == nil)
        // A later wake acknowledges the earlier ones as well.
        ledger.suspensionAnswered()
        #expect(ledger.handled(wake(2), connection: 0).deliver?.id == 2)
        #expect(ledger.next(consumer).confirm == nil)
        ledger.woken()
        #expect(ledger.suspensionCancelled() == nil)
        #expect(ledger.handled(wake(3), connection: 0).deliver?.id == 3)
        #expect(ledger.next(consumer).confirm == 3)
    }

    @Test func mergesUntakenWakes() throws {
        var ledger = WakeLedger()
        let subscription = ledger.subscribe()
        let consumer = try #require(subscription)
        let limit = UInt64(WakeLedger.bufferLimit)
        for id in 1...limit + 2 {
            #expect(ledger.handled(wake(id, id == limit + 1 ? .socket : .request), connection: 0) == .init())
        }
        for id in 1..<limit {
            #expect(ledger.next(consumer) == .init(.wake(wake(id)), confirm: id == 1 ? nil : id - 1))
        }
        let last = ledger.next(consumer)
        #expect(last.confirm == limit - 1)
        var merged = wake(limit + 2, [.request, .socket])
        merged = Wake(
            id: merged.id, reasons: merged.reasons, sockets: [], budget: .seconds(10), asleepFor: .seconds(3))
        #expect(last.next == .wake(merged))
        #expect(ledger.next(consumer) == .init(.wait, confirm: limit + 2))
    }

    @Test func doesNotAcknowledgeWakesOfAnEarlierConnection() throws {
        var ledger = WakeLedger()
        let subscription = ledger.subscribe()
        let consumer = try #require(subscription)
        _ = ledger.handled(wake(1), connection: 0)
        ledger.connectionLost()
        #expect(ledger.next(consumer) == .init(.wake(wake(1))))
        #expect(ledger.handled(wake(2), connection: 0) == .init())
        #expect(ledger.handled(wake(1), connection: 1) == .init())
        #expect(ledger.next(consumer) == .init(.wake(wake(2))))
        #expect(ledger.next(consumer) == .init(.wake(wake(1))))
        #expect(ledger.unsubscribe(consumer) == 1)
    }

    @Test func aConsumerThatIsGoneBlocksNothing() throws {
        var ledger = WakeLedger()
        let subscription = ledger.subscribe()
        let consumer = try #require(subscription)
        #expect(ledger.subscribe() == nil)
        _ = ledger.handled(wake(1), connection: 0)
        _ = ledger.handled(wake(2), connection: 0)
        _ = ledger.next(consumer)
        #expect(ledger.unsubscribe(consumer) == 2)
        #expect(ledger.unsubscribe(consumer) == nil)
        #expect(ledger.next(consumer) == .init(.finished))
        #expect(ledger.subscribe() != nil)
    }
}

@Suite struct ValueTests {
    @Test(arguments: WireErrorCode.allCases.filter { $0 != .unspecified })
    func everyErrorOfTheWireHasACode(_ code: WireErrorCode) throws {
        let error = NightbellError(.sample(code, "reason."))
        #expect(error.code != .unrecognized)
        #expect(error.description.hasSuffix(": reason."))
    }

    @Test func reportsUnknownErrors() {
        let error = NightbellError(.sample(.UNRECOGNIZED(77), "something new"))
        #expect(error.code == .unrecognized)
        #expect(
            error.description
                == "The supervisor answered with an unknown error: code 77, something new.")
    }

    @Test(arguments: NightbellError.Code.allCases)
    func errorsAreSentences(_ code: NightbellError.Code) {
        let plain = NightbellError(code, "").description
        #expect(plain.first?.isUppercase == true)
        #expect(plain.hasSuffix(".") && !plain.hasSuffix(".."))
    }

    @Test func describesReasonsAndConditions() {
        #expect(WakeReasons([.keepAlive, .socket]).description == "socket+keep-alive")
        #expect(
            SocketConditions([.readable, .peerClosed, .hangUp]).description == "readable+peerClosed+hangUp")
    }

    @Test(arguments: [
        ("", []), ("Zg==", [102]), ("Zm8=", [102, 111]), ("Zm9v", [102, 111, 111]), ("+/8A", [251, 255, 0]),
    ])
    func decodesBase64(_ text: String, _ bytes: [UInt8]) {
        #expect(Environment.decodeBase64(text) == bytes)
    }

    @Test(arguments: ["Z", "Zg", "Zg=", "Z===", "Zm9v!", "Zg==Zg=="])
    func refusesWhatIsNotBase64(_ text: String) {
        #expect(Environment.decodeBase64(text) == nil)
    }
}
