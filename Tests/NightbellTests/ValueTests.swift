import Nightbell
import NightbellWire
import Testing

@Suite struct WakeAcknowledgementTests {
    private func wake(_ id: UInt64, _ reasons: WakeReasons = .request) -> Wake {
        Wake(id: id, reasons: reasons, sockets: [], budget: .seconds(10), asleepFor: .seconds(1))
    }

    @Test func withoutAConsumerAWakeIsDoneAfterItsHandlers() {
        var sharedState = WakeAcknowledgements()
        #expect(sharedState.handled(wake(7), connection: 0) == .init(confirm: 7))
    }

    @Test func sendsNothingBetweenReadyToSuspendAndTheNextMessage() throws {
        var sharedState = WakeAcknowledgements()
        let subscription = sharedState.subscribe()
        let consumer = try #require(subscription)
        #expect(sharedState.next(consumer).next == .wait)
        #expect(sharedState.handled(wake(1), connection: 0).deliver?.id == 1)
        sharedState.suspensionAnswered()
        #expect(sharedState.next(consumer) == .init(.wait))
        #expect(sharedState.suspensionCancelled() == 1)
        #expect(sharedState.suspensionCancelled() == nil)
        // A later wake acknowledges the earlier ones as well.
        sharedState.suspensionAnswered()
        #expect(sharedState.handled(wake(2), connection: 0).deliver?.id == 2)
        #expect(sharedState.next(consumer).confirm == nil)
        sharedState.woken()
        #expect(sharedState.suspensionCancelled() == nil)
        #expect(sharedState.handled(wake(3), connection: 0).deliver?.id == 3)
        #expect(sharedState.next(consumer).confirm == 3)
    }

    @Test func mergesUntakenWakes() throws {
        var sharedState = WakeAcknowledgements()
        let subscription = sharedState.subscribe()
        let consumer = try #require(subscription)
        let limit = UInt64(WakeAcknowledgements.bufferLimit)
        for id in 1...limit + 2 {
            #expect(
                sharedState.handled(wake(id, id == limit + 1 ? .socket : .request), connection: 0) == .init())
        }
        for id in 1..<limit {
            #expect(sharedState.next(consumer) == .init(.wake(wake(id)), confirm: id == 1 ? nil : id - 1))
        }
        let last = sharedState.next(consumer)
        #expect(last.confirm == limit - 1)
        var merged = wake(limit + 2, [.request, .socket])
        merged = Wake(
            id: merged.id, reasons: merged.reasons, sockets: [], budget: .seconds(10), asleepFor: .seconds(3))
        #expect(last.next == .wake(merged))
        #expect(sharedState.next(consumer) == .init(.wait, confirm: limit + 2))
    }

    @Test func doesNotAcknowledgeWakesOfAnEarlierConnection() throws {
        var sharedState = WakeAcknowledgements()
        let subscription = sharedState.subscribe()
        let consumer = try #require(subscription)
        _ = sharedState.handled(wake(1), connection: 0)
        sharedState.connectionLost()
        #expect(sharedState.next(consumer) == .init(.wake(wake(1))))
        #expect(sharedState.handled(wake(2), connection: 0) == .init())
        #expect(sharedState.handled(wake(1), connection: 1) == .init())
        #expect(sharedState.next(consumer) == .init(.wake(wake(2))))
        #expect(sharedState.next(consumer) == .init(.wake(wake(1))))
        #expect(sharedState.unsubscribe(consumer) == 1)
    }

    @Test func aConsumerThatIsGoneBlocksNothing() throws {
        var sharedState = WakeAcknowledgements()
        let subscription = sharedState.subscribe()
        let consumer = try #require(subscription)
        #expect(sharedState.subscribe() == nil)
        _ = sharedState.handled(wake(1), connection: 0)
        _ = sharedState.handled(wake(2), connection: 0)
        _ = sharedState.next(consumer)
        #expect(sharedState.unsubscribe(consumer) == 2)
        #expect(sharedState.unsubscribe(consumer) == nil)
        #expect(sharedState.next(consumer) == .init(.finished))
        #expect(sharedState.subscribe() != nil)
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
