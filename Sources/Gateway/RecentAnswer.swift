import LinuxSystem
import Nightbell

/// An answer of the supervisor as it was a short time ago: however many ask, the supervisor is asked once.
actor RecentAnswer<Value: Sendable> {
    struct Dated: Sendable {
        let value: Value
        /// When the supervisor was asked.
        let takenAt: ContinuousClock.Instant
        /// The same moment by the clock of events: earlier ones are in it, later ones may be.
        let takenAtUnixNanoseconds: UInt64

        /// In milliseconds. Events since then may have changed what is in it.
        var age: Int64 { Int64(takenAt.duration(to: .now) / .milliseconds(1)) }
    }

    private let link: SupervisorLink
    /// How old it may be.
    private let age: Duration
    private let question: @Sendable (inout Administration) throws(NightbellError) -> Value
    private var latest: Dated?
    private var validUntil = ContinuousClock.now
    private var refresh: Task<Result<Dated, APIError>, Never>?

    /// The answer may be older if it takes long: the supervisor and the gateway spend this share of the time on
    /// it at most.
    private static var share: Int { 100 }
    /// Time that was spent waiting, such as for a supervisor that is being replaced, must not count.
    private static var greatestAge: Duration { .seconds(20) }

    init(
        _ link: SupervisorLink, age: Duration,
        _ question: @escaping @Sendable (inout Administration) throws(NightbellError) -> Value
    ) {
        self.link = link
        self.age = age
        self.question = question
    }

    func get() async throws(APIError) -> Dated {
        if let latest, ContinuousClock.now < validUntil { return latest }
        let task = refresh ?? Task { await ask() }
        refresh = task
        return try await task.value.get()
    }

    private func ask() async -> Result<Dated, APIError> {
        let (began, beganUnix) = (ContinuousClock.now, WallClock.now())
        defer { refresh = nil }
        do throws(APIError) {
            let value = try await link.ask(isFree: true, question)
            let now = ContinuousClock.now
            validUntil = now + min(max(age, began.duration(to: now) * Self.share), Self.greatestAge)
            let answer = Dated(value: value, takenAt: began, takenAtUnixNanoseconds: beganUnix)
            latest = answer
            return .success(answer)
        } catch {
            return .failure(error)
        }
    }
}
