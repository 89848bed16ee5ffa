import Glibc
import LinuxSystem
import Nightbell
import Testing

/// The events reported by handlers, in order.
final class EventLog: Sendable {
    private let entries = Monitor<[String]>([])

    func note(_ entry: String) {
        entries.withLock { $0.append(entry) }
        entries.changed()
    }

    var all: [String] { entries.withLock { $0 } }

    /// Waits for this entry.
    func expect(_ entry: String, sourceLocation: SourceLocation = #_sourceLocation) throws {
        let deadline = BootClock.now() + 20_000_000_000
        let found = entries.turn { entries in
            if entries.contains(entry) { return .done(true) }
            let left = deadline - BootClock.now()
            return left > 0 ? .wait(left) : .done(false)
        }
        try #require(found, "no “\(entry)” in \(all)", sourceLocation: sourceLocation)
    }

    func handlers() -> Client.Handlers {
        var handlers = Client.Handlers()
        handlers.wake = { self.note("wake \($0.id) \($0.reasons)") }
        handlers.prepareToSuspend = {
            self.note("prepare")
            return []
        }
        handlers.suspendCancelled = { self.note("cancelled") }
        handlers.didEnterBackground = { self.note("background") }
        handlers.backgroundTimeExpiring = { self.note("expiring \($0)") }
        handlers.willTerminate = { self.note("terminate \($0)") }
        handlers.connectionLost = { self.note("lost \($0.code)") }
        handlers.reconnected = { self.note("reconnected") }
        handlers.socketLost = { self.note("socket lost \($0.name) \($1.code)") }
        handlers.keepAliveLost = { self.note("keep-alive lost \($0.code)") }
        return handlers
    }
}

/// A value that one thread sets once and another waits for.
final class Promise<Value: Sendable>: Sendable {
    private let value = Monitor<Value?>(nil)

    func fulfil(_ new: Value) {
        value.withLock { $0 = new }
        value.changed()
    }

    var isFulfilled: Bool { value.withLock { $0 != nil } }

    func wait(sourceLocation: SourceLocation = #_sourceLocation) throws -> Value {
        let deadline = BootClock.now() + 20_000_000_000
        let found: Value? = value.turn { value in
            if let value { return .done(value) }
            let left = deadline - BootClock.now()
            return left > 0 ? .wait(left) : .done(nil)
        }
        return try #require(found, "the promise was not fulfilled", sourceLocation: sourceLocation)
    }
}

/// A pipe to hand over.
final class Pipe: Sendable {
    let reader: OwnedDescriptor
    let writer: OwnedDescriptor

    init() throws {
        var ends: [CInt] = [-1, -1]
        _ = try systemCall("pipe") { pipe(&ends) }
        reader = OwnedDescriptor(adopting: ends[0])
        writer = OwnedDescriptor(adopting: ends[1])
    }

    var descriptor: CInt { reader.rawValue }

    func write() throws {
        let rawValue = writer.rawValue
        _ = try systemCall("write") { Glibc.write(rawValue, "x", 1) }
    }

    /// Reads the one byte that is there.
    func drain() {
        var byte: UInt8 = 0
        _ = read(reader.rawValue, &byte, 1)
    }
}
