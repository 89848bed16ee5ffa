import NIOCore

/// The channels of one event loop that may be hibernated. It looks at all of them from time to time: a timer of its own
/// for each channel would cost more, and leave an event loop with memory for as many as there ever were.
///
/// Only its event loop touches it.
final class IdleWatch {
    /// So many are hibernated in a row; then others have their turn.
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

    /// From the end on: whoever is taken out makes room for one that was looked at.
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
