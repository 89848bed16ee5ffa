import LinuxSystem
import Nightbell

/// All clients and the supervisor's status, as they were a short time ago: however many ask, the supervisor
/// is asked once.
actor ClientDirectory {
    struct Snapshot: Sendable {
        let status: SupervisorStatus
        /// Sorted by their identifiers.
        let clients: [ClientInfo]
        let takenAt: ContinuousClock.Instant
        /// The same moment by the clock of events: earlier ones are in it, later ones may be.
        let takenAtUnixNanoseconds: UInt64

        /// In milliseconds. Events since then may have changed what is in it.
        var age: Int64 { Int64(takenAt.duration(to: .now) / .milliseconds(1)) }
    }

    private let link: SupervisorLink
    private let limits: Limits
    private var latest: Snapshot?
    private var validUntil = ContinuousClock.now
    private var refresh: Task<Result<Snapshot, APIError>, Never>?

    /// A list takes the supervisor this share of the time at most, however many clients there are.
    private static let share = 20

    init(_ link: SupervisorLink, _ limits: Limits) {
        self.link = link
        self.limits = limits
    }

    func snapshot() async throws(APIError) -> Snapshot {
        if let latest, ContinuousClock.now < validUntil { return latest }
        let task = refresh ?? Task { await read() }
        refresh = task
        return try await task.value.get()
    }

    private func read() async -> Result<Snapshot, APIError> {
        let began = ContinuousClock.now
        let beganUnix = WallClock.now()
        defer { refresh = nil }
        do throws(APIError) {
            let (status, clients) = try await link.ask(isFree: true) {
                (administration) throws(NightbellError) in
                (try administration.status(), try administration.list())
            }
            let now = ContinuousClock.now
            let snapshot = Snapshot(
                status: status, clients: clients.sorted { $0.identifier < $1.identifier }, takenAt: began,
                takenAtUnixNanoseconds: beganUnix)
            validUntil = now + max(limits.listAge, began.duration(to: now) * Self.share)
            latest = snapshot
            return .success(snapshot)
        } catch {
            return .failure(error)
        }
    }
}
