import Nightbell
import Synchronization

/// Downloads an address, asleep or not, and anew whenever it is there; also in a process that is launched for
/// it.
enum Downloads {
    private static let session = Mutex<TransferSession?>(nil)
    private static let name = "file"

    static func run(_ address: String) throws -> Client {
        var results = TransferSession.Handlers()
        results.finished = { report("\(name) has \($0.bytes) bytes") }
        results.sessionFinished = { next(address) }
        let client = try Client(configuration("transfer", []), handlers: handlers())
        // A launched client would be suspended as soon as it has a session, before it has anything to wait for.
        let setUp = try client.beginBackgroundTask("set-up")
        let session = try TransferSession(client, identifier: "files", handlers: results)
        self.session.withLock { $0 = session }
        next(address)
        try enterBackground(client)
        try client.end(setUp)
        return client
    }

    /// As long as a result by this name is not handled, no other one is added.
    private static func next(_ address: String) {
        do {
            try session.withLock { _ = try $0?.download(address, name: name) }
        } catch {
            report("cannot download: \(error)")
        }
    }
}

/// Is launched for the issue to which its manifest subscribes.
enum Issues {
    private static let session = Mutex<TransferSession?>(nil)

    static func run() throws -> Client {
        var results = TransferSession.Handlers()
        results.finished = { report("\($0.task.name) has \($0.bytes) bytes") }
        let client = try Client(configuration("newsstand", [.newsstand]), handlers: handlers())
        let session = try TransferSession(client, identifier: TransferSession.newsstand, handlers: results)
        self.session.withLock { $0 = session }
        try enterBackground(client)
        return client
    }
}
