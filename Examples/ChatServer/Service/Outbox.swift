internal import NIOCore
internal import Synchronization

/// Pending deliveries to the members on one event loop, in order.
final class Outbox: Sendable {
    private struct Inside {
        var waiting: [Delivery] = []
        var isClosed = false
        var deliver: (@Sendable ([Delivery]) -> Void)?
    }

    private let loop: any EventLoop
    private let inside = Mutex(Inside())

    init(_ loop: any EventLoop) {
        self.loop = loop
    }

    /// - Parameter deliver: called on the event loop, with all pending deliveries.
    func open(_ deliver: @escaping @Sendable ([Delivery]) -> Void) {
        inside.withLock { $0.deliver = deliver }
    }

    /// Stops delivering: the event loop is about to end.
    func close() {
        inside.withLock { inside in
            inside.isClosed = true
            inside.waiting = []
            inside.deliver = nil
        }
    }

    func put(_ delivery: Delivery) {
        let isFirst = inside.withLock { inside in
            guard !inside.isClosed else { return false }
            inside.waiting.append(delivery)
            return inside.waiting.count == 1
        }
        if isFirst { loop.execute { self.empty() } }
    }

    private func empty() {
        let (waiting, deliver) = inside.withLock { inside in
            let waiting = inside.waiting
            inside.waiting = []
            return (waiting, inside.deliver)
        }
        deliver?(waiting)
    }
}
