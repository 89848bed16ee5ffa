import Foundation

/// The checkout that these tests were built from.
enum Repository {
    static let root = URL(fileURLWithPath: #filePath)
        .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()

    static func path(_ path: String) -> String { root.appendingPathComponent(path).path }

    static func text(_ path: String) throws -> String {
        try String(contentsOf: root.appendingPathComponent(path), encoding: .utf8)
    }

    /// A file of a test's own.
    static func write(_ text: String, to path: String) throws {
        try text.write(toFile: path, atomically: false, encoding: .utf8)
    }

    static func remove(_ path: String) { try? FileManager.default.removeItem(atPath: path) }

    static func exists(_ path: String) -> Bool { FileManager.default.fileExists(atPath: self.path(path)) }

    static func isExecutable(_ path: String) -> Bool {
        FileManager.default.isExecutableFile(atPath: self.path(path))
    }

    /// The names of the directories in a directory.
    static func directories(in path: String) throws -> [String] {
        try FileManager.default.contentsOfDirectory(
            at: root.appendingPathComponent(path), includingPropertiesForKeys: [.isDirectoryKey]
        )
        .filter { try $0.resourceValues(forKeys: [.isDirectoryKey]).isDirectory == true }
        .map(\.lastPathComponent)
        .sorted()
    }

    /// The paths of all files below a directory with this suffix.
    static func files(in path: String, suffix: String) throws -> [String] {
        try FileManager.default.subpathsOfDirectory(atPath: self.path(path))
            .filter { $0.hasSuffix(suffix) }
            .map { "\(path)/\($0)" }
            .sorted()
    }

    /// The paths of all executable files below a directory.
    static func executables(in path: String) throws -> [String] {
        try FileManager.default.subpathsOfDirectory(atPath: self.path(path))
            .map { "\(path)/\($0)" }
            .filter { file in
                var isDirectory: ObjCBool = false
                return FileManager.default.fileExists(atPath: self.path(file), isDirectory: &isDirectory)
                    && !isDirectory.boolValue && isExecutable(file)
            }
            .sorted()
    }

    /// The modules that a source file imports, whatever the access level or attributes.
    static func imports(of path: String) throws -> Set<String> {
        var modules: Set<String> = []
        for line in try text(path).split(whereSeparator: \.isNewline) {
            var words = line.split(whereSeparator: \.isWhitespace)[...]
            while let word = words.first, word.hasPrefix("@") || accessLevels.contains(String(word)) {
                words.removeFirst()
            }
            guard words.first == "import" else { continue }
            words.removeFirst()
            if let word = words.first, declarationKinds.contains(String(word)) { words.removeFirst() }
            guard let module = words.first?.split(separator: ".").first else { continue }
            modules.insert(String(module))
        }
        return modules
    }

    private static let accessLevels: Set = ["public", "package", "internal", "fileprivate", "private"]
    private static let declarationKinds: Set = [
        "struct", "class", "enum", "protocol", "func", "var", "let", "typealias",
    ]
}
