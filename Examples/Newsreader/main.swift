import Glibc
import Nightbell
import Synchronization

// A newsreader that has no process until there is something to read. Its manifest subscribes to a paper; from
// its first launch on it also has an address for pushes, downloads the articles that these name, and looks for
// news at moments that the supervisor finds good. Each line that it prints is one thing that it did.

private let session = Mutex<TransferSession?>(nil)

do {
    var handlers = Client.Handlers { _ in }
    handlers.fetching {
        report("has looked for news")
        return .newData
    }
    handlers.handlingPushes { message in
        // The body is the address of an article.
        download(String(decoding: message.body, as: UTF8.self))
        return .newData
    }
    handlers.notificationActivated = { report("shows \($0.notification.identifier)") }
    let client = try Client(
        .init(identifier: "org.example.newsreader", modes: [.fetch, .newsstand]), handlers: handlers)
    // A session counts as something to wake for: without a task the client could sleep before it is set up.
    let setUp = try client.beginBackgroundTask("set-up")
    let paper = try TransferSession(
        client, identifier: TransferSession.newsstand, handlers: results(for: client))
    let articles = try TransferSession(client, identifier: "articles", handlers: results(for: client))
    session.withLock { $0 = articles }
    try client.setMinimumFetchInterval(.minimum)
    if let address = try? client.pushEndpoint() { report("has the address \(address)") }
    try client.enterBackground()
    try client.end(setUp)
    withExtendedLifetime(paper) { while true { pause() } }
} catch {
    report("cannot run: \(error)")
    exit(EX_UNAVAILABLE)
}

/// Each result is announced to the reader.
private func results(for client: Client) -> TransferSession.Handlers {
    var handlers = TransferSession.Handlers()
    handlers.finished = { result in
        guard result.failure == nil else { return report("has not got \(result.task.name)") }
        report("has \(result.task.name): \(result.bytes) bytes")
        let news = LocalNotification(
            result.task.name, title: "News", body: "\(result.task.name) is here", trigger: .now)
        _ = try? client.notifications.schedule(news)
    }
    return handlers
}

private func download(_ address: String) {
    let name = String(address.split(separator: "/").last ?? "article")
    do {
        try session.withLock { _ = try $0?.download(address, name: name) }
        report("downloads \(name)")
    } catch {
        report("cannot download \(name): \(error)")
    }
}

private func report(_ line: String) {
    print(line)
    fflush(nil)
}
