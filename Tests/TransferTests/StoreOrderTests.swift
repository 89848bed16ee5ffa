import EdgeTestSupport
import Testing
import TransferModel

@testable import TransferEngine

/// The order in which the store's changes become durable.
@Suite("The order of a store's changes")
struct StoreOrderTests {
    @Test("The end of a task is not stored before that of its session, whatever is stored at once meanwhile")
    func endIsWhole() throws {
        let directory = try TemporaryDirectory()
        let path = directory.path + "/transfers.sqlite"
        let store = try TransferStore(path: path)
        let session = store.addSession(client: "org.test.reader", identifier: "s", seen: 0)
        let ids = try (0..<2).map { _ in
            let id = store.nextTaskID()
            try store.add(
                TransferStore.Record(
                    id: id, session: session, tag: "", task: TransferTask(url: .refused), state: .waiting,
                    created: 0, wasTried: false, facts: PartialBody(), durableBytes: 0))
            return id
        }
        try store.commit()

        try store.setState(ids[0], .finished(Outcome(status: 200)))
        let facts = PartialBody(bytes: 0, total: 7, validator: .entityTag("\"one\""))
        try store.setFactsAtOnce(ids[1], facts, durableBytes: 0, isPromise: false)
        // A process that is killed here leaves this.
        var (sessions, records) = try TransferStore(path: path).load()
        #expect(records.map(\.state) == [.waiting, .waiting])
        #expect(records[1].facts.validator == facts.validator && records[1].facts.total == 7)

        store.setEnds(session, 1)
        try store.commit()
        (sessions, records) = try TransferStore(path: path).load()
        #expect(records[0].state == .finished(Outcome(status: 200)) && sessions[0].ends == 1)
        #expect(records[1].facts.validator == facts.validator)
    }
}
