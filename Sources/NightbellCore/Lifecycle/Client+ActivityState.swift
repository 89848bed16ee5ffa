extension Client {
    /// The state of a client that has been active. It is allocated at the first change, because there may be
    /// thousands of clients that were ended before their first wake and need none of it.
    struct ActivityState: Sendable, Equatable {
        fileprivate struct Value: Sendable, Equatable {
            var assertions = Assertions()
            var keepAlive: KeepAlive?
            var limiter = WakeLimiter()
            var backoff = Backoff()
            var lastAsleepFor = Duration.zero
            var fired: [FiredSocket] = []
        }

        /// Empty, or one value.
        private var values: [Value] = []

        fileprivate var value: Value {
            get { values.first ?? Value() }
            _modify {
                if values.isEmpty { values.append(Value()) }
                yield &values[0]
            }
        }

        /// Frees the memory if it holds defaults only.
        mutating func tidy() {
            if value == Value() { values = [] }
        }

        static func == (one: ActivityState, other: ActivityState) -> Bool { one.value == other.value }
    }

    var assertions: Assertions {
        get { activity.value.assertions }
        _modify { yield &activity.value.assertions }
    }

    var keepAlive: KeepAlive? {
        get { activity.value.keepAlive }
        _modify { yield &activity.value.keepAlive }
    }

    var limiter: WakeLimiter {
        get { activity.value.limiter }
        _modify { yield &activity.value.limiter }
    }

    var backoff: Backoff {
        get { activity.value.backoff }
        _modify { yield &activity.value.backoff }
    }

    /// How long the client had slept when its latest wake was decided.
    var lastAsleepFor: Duration {
        get { activity.value.lastAsleepFor }
        _modify { yield &activity.value.lastAsleepFor }
    }

    /// The sockets of `pendingWake`; kept apart so that their memory is reused.
    var fired: [FiredSocket] {
        get { activity.value.fired }
        _modify { yield &activity.value.fired }
    }
}
