extension Client {
    /// Wakes in order. Ends when the client is closed.
    ///
    /// There is one consumer at a time: a second sequence that is made while one exists ends at once.
    public struct Wakes: AsyncSequence, Sendable {
        public typealias Element = Wake
        public typealias Failure = Never

        /// Lives as long as an iterator exists that can ask for an element.
        final class Subscription: Sendable {
            private let session: Session
            private let number: UInt64?

            init(_ session: Session) {
                self.session = session
                number = session.subscribe()
            }

            deinit {
                if let number { session.unsubscribe(number) }
            }

            func next() async -> Wake? {
                guard let number else { return nil }
                return await session.nextWake(number)
            }
        }

        private let subscription: Subscription

        init(_ subscription: Subscription) {
            self.subscription = subscription
        }

        public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(subscription: subscription) }

        public struct AsyncIterator: AsyncIteratorProtocol {
            let subscription: Subscription

            /// Marks the previous wake as done, and waits for another. nil: the client is closed or the task
            /// cancelled.
            public mutating func next() async -> Wake? { await subscription.next() }

            /// Like ``next()``.
            public mutating func next(isolation actor: isolated (any Actor)?) async -> Wake? {
                await subscription.next()
            }
        }
    }
}
