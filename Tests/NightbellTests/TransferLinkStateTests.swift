import SwiftProtobuf
import Testing
import TransferWire

@testable import Nightbell

/// The reports of a transfer process, which come again on each connection.
@Suite struct TransferLinkStateTests {
    private func ends(_ state: TransferLinkState) -> Int {
        state.events.count { if case .sessionFinished = $0 { true } else { false } }
    }

    private func finished(_ task: Int64) -> WireTransferReport { .with { $0.finished.task = task } }
    private let end = WireTransferReport.with { $0.sessionFinished = WireTransferSessionFinished() }

    @Test("The end of a session is told once, though each connection tells it")
    func theEndIsToldOnce() {
        var state = TransferLinkState()
        state.take(finished(1), nil)
        state.take(end, nil)
        #expect(ends(state) == 1)
        // The result was handled; its release was lost with the connection.
        state.handled.insert(1)
        state.dropConnection()
        state.take(finished(1), nil)
        state.take(end, nil)
        #expect(ends(state) == 1 && !state.isNeeded)
    }

    @Test("The end is told again after another task, result or challenge")
    func theEndIsToldAgain() {
        var state = TransferLinkState()
        state.take(end, nil)
        state.take(finished(1), nil)
        state.take(end, nil)
        #expect(ends(state) == 2)
        state.take(.with { $0.challenge.task = 2 }, nil)
        state.take(end, nil)
        #expect(ends(state) == 3)
        state.additions = [7]
        state.take(.with { $0.answer.number = 7 }, nil)
        state.take(end, nil)
        #expect(ends(state) == 4)
    }
}
