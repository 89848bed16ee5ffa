import Foundation
import NightbellCore
import Simulation
import Testing

/// The search for mistakes. `scripts/simulate --mistakes` makes all of them, in a release build.
@Suite("Mistakes are found")
struct MistakeTests {
    @Test(
        "A mistake of the core is found, by the same world each time, in every kind of world",
        .enabled(if: Mutation.areCompiledIn, "this build has no mistakes of the core"),
        arguments: [
            Mutation.armsOneSocket, .ignoresFetchInterval, .observesUndeclared, .repeatsPushes,
            .postsCancelledNotifications,
        ])
    func core(_ mutation: Mutation) throws {
        let found = try #require(Mistake.core(mutation).find())
        #expect(Mistake.core(mutation).find() == found)
    }

    @Test("So is one of the edge")
    func edge() throws {
        let found = try #require(Mistake.edge(.thawForgotten).find())
        #expect(Mistake.edge(.thawForgotten).find() == found)
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
}
