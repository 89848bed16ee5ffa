import Foundation
import NightbellCore
import Simulation
import Testing

/// Shows that the simulator finds deliberate mistakes.
@Suite("Mistakes are found")
struct MutationTests {
    /// Some mistakes only show if the supervisor ends at the right moment.
    private static let seeds = 0..<1_200 as Range<UInt64>
    /// Most mistakes show in the first of them.
    private static let seedsWithoutMistake = 0..<24 as Range<UInt64>
    private static let steps = 600

    /// The first world that violates an invariant. The mistake must be found, but the invariant that finds it
    /// may change with the worlds.
    private func firstFailure(mutation: Mutation? = nil, fault: Fault? = nil) -> Run? {
        let isMistaken = mutation != nil || fault != nil
        for seed in isMistaken ? Self.seeds : Self.seedsWithoutMistake {
            let run = Run(seed: seed, steps: Self.steps, mutation: mutation, fault: fault)
            if run.violation != nil { return run }
        }
        return nil
    }

    @Test(
        "A mistake of the core is found",
        .enabled(if: Mutation.areCompiledIn, "mutations are in debug builds only"),
        arguments: Mutation.allCases.filter {
            !(FetchLifeTests.mutations + ObservationLifeTests.mutations + PushLifeTests.mutations
                + NotificationLifeTests.mutations)
                .contains($0)
        })
    func mutation(_ mutation: Mutation) throws {
        let run = try #require(firstFailure(mutation: mutation), "\(mutation) is not found")
        let violation = try #require(run.violation)
        print("mutation \(mutation.rawValue): seed \(run.seed), \(violation)")
        // The seed alone finds it again.
        let again = Run(seed: run.seed, steps: Self.steps, mutation: mutation)
        #expect(mutation == .stopsInHashOrder || again.violation == violation)
    }

    @Test("A mistake of the edge is found", arguments: Fault.allCases)
    func fault(_ fault: Fault) throws {
        let run = try #require(firstFailure(fault: fault), "\(fault) is not found")
        print("fault \(fault.rawValue): seed \(run.seed), \(try #require(run.violation))")
    }

    @Test("The documentation lists exactly the mistakes that exist")
    func documentation() throws {
        let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent()
        let page = root.appendingPathComponent("Sources/Simulation/Simulation.docc/Simulation.md")
        let text = try String(contentsOf: page, encoding: .utf8)
        let told = text.split(separator: "\n").compactMap { line in
            line.hasPrefix("| `") && line.contains("`: ")
                ? String(line.dropFirst(3).prefix { $0 != "`" }) : nil
        }
        #expect(told == Mutation.allCases.map(\.rawValue) + Fault.allCases.map(\.rawValue))
    }

    @Test("Without a mistake, the same worlds are clean")
    func clean() {
        let run = firstFailure()
        #expect(run == nil, "\(run?.violation?.description ?? "")")
    }
}
