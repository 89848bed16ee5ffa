import Keeper
import Testing

@Suite("When a worker is replaced") struct RestartPolicyTests {
    private static let milliseconds: Int64 = 1_000_000

    @Test("At once the first time, then with back-off; then all clients are thawed, once")
    func loop() {
        var policy = RestartPolicy()
        let verdicts = (0..<8).map { _ in policy.recordDeath(servedFor: nil) }
        let pauses = verdicts.map { $0.pause / Self.milliseconds }
        #expect(pauses == [0, 50, 100, 200, 400, 5_000, 5_000, 5_000])
        #expect(verdicts.map(\.thaws) == [false, false, false, false, true, false, false, false])
    }

    @Test("A worker that stays up for `period / limit` resets the count")
    func lives() {
        var policy = RestartPolicy()
        for _ in 0..<4 { _ = policy.recordDeath(servedFor: 1_999 * Self.milliseconds) }
        let verdict = policy.recordDeath(servedFor: 2_000 * Self.milliseconds)
        #expect(verdict == .init(pause: 0, thaws: false))
        #expect(policy.recordDeath(servedFor: 0).pause == 50 * Self.milliseconds)
    }
}
