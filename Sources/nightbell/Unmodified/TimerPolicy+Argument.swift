import ArgumentParser
import Manifests

extension TimerPolicy: ExpressibleByArgument {
    package init?(argument: String) { self.init(argument) }

    package static var allValueStrings: [String] { ["exact", "coalesce=TIME", "ignore"] }
}
