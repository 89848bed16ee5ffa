import Testing

@Suite("The package description")
struct PackageDescriptionTests {
    /// A target as `Package.swift` declares it.
    private struct Declaration {
        let name: Substring
        /// nil: the default, a directory of its name in Sources or Tests.
        let path: Substring?
        let isTest: Bool
        let text: Substring

        init(_ kind: Substring, _ text: Substring) throws {
            isTest = kind == ".testTarget("
            self.text = text
            name = try #require(Self.value(of: "name", in: text))
            path = Self.value(of: "path", in: text)
        }

        private static func value(of label: String, in text: Substring) -> Substring? {
            guard let start = text.firstRange(of: "\(label): \"") else { return nil }
            return text[start.upperBound...].prefix { $0 != "\"" }
        }

        var isExample: Bool { path?.hasPrefix("Examples/") ?? false }
        var isSource: Bool { !isTest && !isExample && !(path?.hasPrefix("Tests/") ?? false) }
    }

    private static func declarations() throws -> [Declaration] {
        let description = try Repository.text("Package.swift")
        let kinds = description.ranges(of: /\.(target|executableTarget|testTarget|systemLibrary)\(/)
        let ends = kinds.dropFirst().map(\.lowerBound) + [description.endIndex]
        return try zip(kinds, ends).map { kind, end in
            try Declaration(description[kind], description[kind.upperBound..<end])
        }
    }

    @Test("No target in Sources depends on an example: examples are leaves")
    func examplesAreLeaves() throws {
        let declarations = try Self.declarations()
        let examples = declarations.filter(\.isExample).map(\.name)
        #expect(examples.contains("nightbell-softphone"))
        let sources = declarations.filter(\.isSource)
        #expect(sources.contains { $0.name == "LoadTester" })
        for source in sources {
            for example in examples where source.text.contains("\"\(example)\"") {
                Issue.record("\(source.name) depends on \(example)")
            }
        }
    }

    @Test("Nothing but the gateway needs what the gateway needs")
    func gateway() throws {
        for declaration in try Self.declarations() {
            let isGateway = ["Gateway", "nightbell-gateway", "GatewayTests"].contains(declaration.name)
            for package in ["hummingbird", "swift-metrics", "swift-nio-ssl", "swift-http-types"] {
                #expect(
                    isGateway || !declaration.text.contains("package: \"\(package)\""), "\(declaration.name)")
            }
            #expect(isGateway || !declaration.text.contains("\"Gateway\""), "\(declaration.name)")
        }
    }

    @Test("Every directory in Sources is a target, and no target in Sources lies elsewhere")
    func rooms() throws {
        let sources = try Self.declarations().filter(\.isSource)
        #expect(sources.allSatisfy { $0.path == nil })
        #expect(sources.map { String($0.name) }.sorted() == (try Repository.directories(in: "Sources")))
    }

    @Test("There are no unsafe flags, with which SwiftPM would refuse the package as a dependency by version")
    func unsafeFlags() throws {
        #expect(!(try Repository.text("Package.swift").contains("unsafeFlags")))
    }
}
