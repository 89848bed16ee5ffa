import NightbellCore
import Testing

@Suite("Facts about the machine")
struct MachineStateTests {
    private var bench = Bench()

    @Test mutating func nothingIsKnownAtFirst() {
        #expect(bench.core.machine == MachineState())
        #expect(bench.core.machine.network == nil && bench.core.machine.isOnBattery == nil)
        #expect(bench.core.machine.unlockedUsers == .unknown)
    }

    @Test mutating func theLastReportCounts() {
        let network = NetworkFact(fingerprint: 7, isUp: true, isMetered: false)
        bench.turn(
            .fact(.network(network)), .fact(.power(isOnBattery: true)), .fact(.unlocked(.known([1_000]))),
            .fact(.sleepImminent(isDelayed: true)))
        #expect(bench.core.machine.network == network && bench.core.machine.isOnBattery == true)
        #expect(bench.core.machine.unlockedUsers.value == [1_000] && bench.core.machine.isSleepImminent)
        bench.turn(
            .fact(.network(nil)), .fact(.power(isOnBattery: nil)), .fact(.unlocked(.unavailable)),
            .fact(.resumed))
        #expect(bench.core.machine.network == nil && bench.core.machine.isOnBattery == nil)
        #expect(bench.core.machine.unlockedUsers == .unavailable && !bench.core.machine.isSleepImminent)
    }

    @Test func noNetworkHasTheFingerprintOfNone() {
        #expect(NetworkFact(fingerprint: 0, isUp: true).fingerprint == 1)
    }

    /// The bits of reasons are in the order of their numbers on the wire, and those of modes are stored.
    @Test func numbersDoNotChange() {
        let reasons: [WakeReasons] = [.fetch, .networkChanged, .location, .device, .bluetooth, .transfer]
        #expect(reasons.map(\.rawValue) == [512, 1_024, 2_048, 4_096, 8_192, 16_384])
        #expect(Modes.named.map(\.mode.rawValue) == [1, 2, 4, 8, 16, 32, 64, 128])
    }
}
