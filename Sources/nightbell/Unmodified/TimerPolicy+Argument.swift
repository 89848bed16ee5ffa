import ArgumentParser
import Manifests

extension TimerPolicy: @retroactive ExpressibleByArgument {
    public init?(argument: String) { self.init(argument) }

    public static var allValueStrings: [String] { ["exact", "ignore"] }
}
