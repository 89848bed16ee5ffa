import NIOCore

/// The channels of one event loop that may be hibernated, checked together at intervals: a timer for each
/// channel would cost more, and the event loop would keep memory for the peak number of timers.
///
/// Confined to its event loop.
final class IdleWatch {
    /// The limit of channels hibernated in a row, so that other work gets its turn.
    private static let mostAtOnce = 32

    private let loop: any EventLoop
    private let pause: TimeAmount
    private var handlers: [HibernationHandler] = []
    private var isScheduled = false

    init(_ loop: any EventLoop, idleTime: TimeAmount) {
        self.loop = loop
        pause = max(.milliseconds(1), .nanoseconds(idleTime.nanoseconds / 8))
    }

    func add(_ handler: HibernationHandler) {
        handler.place = handlers.count
        handlers.append(handler)
        if !isScheduled { schedule(in: pause, from: handlers.count) }
    }

    func remove(_ handler: HibernationHandler) {
        guard let place = handler.place else { return }
        handler.place = nil
        let last = handlers.removeLast()
        if last !== handler {
            handlers[place] = last
            last.place = place
        }
        if handlers.isEmpty { handlers = [] }
    }

    private func schedule(in time: TimeAmount, from end: Int) {
        isScheduled = true
        let bound = NIOLoopBound(self, eventLoop: loop)
        loop.scheduleTask(in: time) { bound.value.look(from: end) }
    }

    /// From the end on: a removed channel is replaced by one that was checked already.
    private func look(from end: Int) {
        isScheduled = false
        let now = NIODeadline.now()
        var count = 0
        var index = min(end, handlers.count)
        while index > 0 {
            index -= 1
            guard handlers[index].isDue(at: now) else { continue }
            handlers[index].hibernateIfPossible()
            count += 1
            if count == Self.mostAtOnce { return schedule(in: .zero, from: index) }
        }
        if !handlers.isEmpty { schedule(in: pause, from: .max) }
    }
}
