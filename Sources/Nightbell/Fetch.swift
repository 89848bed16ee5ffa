package import NightbellWire

/// How often a client wants to fetch at most.
public enum FetchInterval: Sendable, Hashable {
    /// The default.
    case never
    /// As often as the supervisor likes.
    case minimum
    /// Not sooner than this after the last fetch, or after the client has left the foreground. The supervisor
    /// may have a longer pause of its own (15 minutes by default).
    case atLeast(Duration)

    package var wireMilliseconds: Int64 {
        switch self {
        case .never: -1
        case .minimum: 0
        case .atLeast(let duration): max(1, duration.wholeNanoseconds / 1_000_000)
        }
    }
}

/// The result of a fetch.
public enum FetchResult: Sendable, Hashable, CaseIterable {
    case newData
    case noData
    case failed

    package var wire: WireFetchResult {
        switch self {
        case .newData: .newData
        case .noData: .noData
        case .failed: .failed
        }
    }
}

/// A fetch that ``Client/Handlers/fetch`` is told of.
///
/// Complete it within ``budget``, on any thread: a client in the background that does not is terminated, and
/// is given fewer fetches later. It is not suspended before.
public struct Fetch: Sendable {
    /// The time from the wake to the completion.
    public let budget: Duration
    let wakeID: UInt64
    let session: Session

    /// Tells the supervisor the result. Further calls do nothing.
    public func complete(_ result: FetchResult) {
        // Nothing is left to do if the supervisor does not know this fetch, or is gone.
        _ = try? session.request(.fetchDone(wakeID, result))
    }
}
