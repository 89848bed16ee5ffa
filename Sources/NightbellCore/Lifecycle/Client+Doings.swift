extension Client {
    /// The state of a client that has been active. It is allocated at the first change, because there may be thousands of
    /// clients that were ended before their first wake and need none of it.
    struct Doings: Sendable, Equatable {
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

    /// How long the client had slept when its latest wake was decided.
    var lastAsleepFor: Duration {
        get { doings.value.lastAsleepFor }
        _modify { yield &doings.value.lastAsleepFor }
    }

    /// The sockets of `pendingWake`; kept apart so that their memory is reused.
    var fired: [FiredSocket] {
        get { doings.value.fired }
        _modify { yield &doings.value.fired }
    }
}
