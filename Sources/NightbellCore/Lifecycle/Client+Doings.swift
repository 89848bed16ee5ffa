extension Client {
    /// What all those have who do something, and those who were ended before they were ever woken do not. Of these there
    /// may be thousands: it has memory of its own, from the first change on.
    struct Doings: Sendable, Equatable {
        fileprivate struct Value: Sendable, Equatable {
            var assertions = Assertions()
            var keepAlive: KeepAlive?
            var limiter = WakeLimiter()
            var backoff = Backoff()
            var lastAsleepFor = Duration.zero
            var fired: [FiredSocket] = []
        }

        /// No more than one.
        private var values: [Value] = []

        fileprivate var value: Value {
            get { values.first ?? Value() }
            _modify {
                if values.isEmpty { values.append(Value()) }
                yield &values[0]
            }
        }

        /// Gives the memory back if there is nothing in it.
        mutating func tidy() {
            if value == Value() { values = [] }
        }

        static func == (one: Doings, other: Doings) -> Bool { one.value == other.value }
    }

    var assertions: Assertions {
        get { doings.value.assertions }
        _modify { yield &doings.value.assertions }
    }

    var keepAlive: KeepAlive? {
        get { doings.value.keepAlive }
        _modify { yield &doings.value.keepAlive }
    }

    var limiter: WakeLimiter {
        get { doings.value.limiter }
        _modify { yield &doings.value.limiter }
    }

    var backoff: Backoff {
        get { doings.value.backoff }
        _modify { yield &doings.value.backoff }
    }

    /// How long it had slept when the wake with the last number was decided.
    var lastAsleepFor: Duration {
        get { doings.value.lastAsleepFor }
        _modify { yield &doings.value.lastAsleepFor }
    }

    /// The sockets that `pendingWake` is about. Kept apart so that its memory is used again.
    var fired: [FiredSocket] {
        get { doings.value.fired }
        _modify { yield &doings.value.fired }
    }
}
