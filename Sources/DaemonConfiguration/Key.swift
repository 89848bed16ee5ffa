import Logging
import Manifests
import NightbellCore

/// One configuration key: its name, its type of value, and the setting that it changes.
package struct Key: Sendable {
    /// As written in the file and after `--set`: `keepAlive.minimumTimeout`.
    package let name: String
    /// A description of valid values, to complete the sentence "expected …".
    package let expected: String
    /// The purpose of the key, in one sentence.
    package let summary: String
    let store: @Sendable (String, inout DaemonSettings) -> Bool
    let show: @Sendable (DaemonSettings) -> String

    /// The environment variable of the same meaning: `NIGHTBELL_KEEP_ALIVE_MINIMUM_TIMEOUT`.
    package var environmentVariable: String { "NIGHTBELL_" + words(separator: "_").uppercased() }

    /// The value in these settings, as it would be written in a file.
    package func value(in settings: DaemonSettings) -> String { show(settings) }

    /// Whether the key needs a restart: a running supervisor cannot change its paths or how it stops clients.
    package var needsStart: Bool {
        let names = [
            "socket", "socketMode", "runtimeDirectory", "stateDirectory", "suspension.method",
            "suspension.cgroupParent", "memoryPressure.pageOut", "monitor", "monitorProgram",
            "transfers", "transferProgram",
        ]
        return names.contains(name) || name.hasPrefix("keeper.") || name.hasPrefix("transfer.")
    }

    /// Copies the value of other settings into these.
    package func copy(from other: DaemonSettings, to settings: inout DaemonSettings) {
        let isStored = store(show(other), &settings)
        precondition(isStored, "what a key shows it understands")
    }

    private func words(separator: Character) -> String {
        var result = ""
        for character in name {
            if character == "." {
                result.append(separator)
            } else if character.isUppercase {
                result.append(separator)
                result.append(character)
            } else {
                result.append(character)
            }
        }
        return result
    }
}

extension Key {
    typealias Path<Value> = WritableKeyPath<DaemonSettings, Value> & Sendable

    static func duration(
        _ name: String, _ path: any Path<Duration>, atLeast minimum: Duration = .zero, _ summary: String
    ) -> Key {
        let limit = minimum == .zero ? "" : " of at least \(DurationText.format(minimum))"
        return Key(
            name: name, expected: "a duration\(limit) such as 600s, 250ms or 3m", summary: summary,
            store: { text, settings in
                guard let value = DurationText.parse(text), value >= minimum else { return false }
                settings[keyPath: path] = value
                return true
            },
            show: { DurationText.format($0[keyPath: path]) })
    }

    static func count(
        _ name: String, _ path: any Path<Int>, _ range: ClosedRange<Int>, _ summary: String
    ) -> Key {
        Key(
            name: name, expected: "a whole number from \(range.lowerBound) to \(range.upperBound)",
            summary: summary,
            store: { text, settings in
                guard let value = Int(text), range.contains(value) else { return false }
                settings[keyPath: path] = value
                return true
            },
            show: { String($0[keyPath: path]) })
    }

    static func share(_ name: String, _ path: any Path<Double>, _ summary: String) -> Key {
        Key(
            name: name, expected: "a share such as 0.1 or 10%, from 0 to 1", summary: summary,
            store: { text, settings in
                let digits = text.hasSuffix("%") ? text.dropLast() : text[...]
                guard isPlainDecimal(digits), let number = Double(digits) else { return false }
                let value = text.hasSuffix("%") ? number / 100 : number
                guard value <= 1 else { return false }
                settings[keyPath: path] = value
                return true
            },
            show: { String($0[keyPath: path]) })
    }

    /// A path name. `limit` counts bytes: `sun_path` holds 108 with its terminating zero.
    static func file(
        _ name: String, _ path: any Path<String>, limit: Int, mayBeEmpty: Bool = false, _ summary: String
    ) -> Key {
        Key(
            name: name,
            expected: "an absolute path of at most \(limit) bytes" + (mayBeEmpty ? ", or nothing" : ""),
            summary: summary,
            store: { text, settings in
                guard text.hasPrefix("/") || (mayBeEmpty && text.isEmpty), text.utf8.count <= limit,
                    !text.utf8.contains(0)
                else {
                    return false
                }
                settings[keyPath: path] = text
                return true
            },
            show: { $0[keyPath: path] })
    }

    /// The path of a cgroup from the root of the mounted hierarchy, or nothing.
    static func cgroup(_ name: String, _ path: any Path<String>, limit: Int, _ summary: String) -> Key {
        Key(
            name: name,
            expected: "an absolute path of at most \(limit) bytes without . and .. in it, or nothing",
            summary: summary,
            store: { text, settings in
                guard text.hasPrefix("/") || text.isEmpty, text.utf8.count <= limit, !text.utf8.contains(0),
                    text.split(separator: "/").allSatisfy({ $0 != "." && $0 != ".." })
                else { return false }
                settings[keyPath: path] = text
                return true
            },
            show: { $0[keyPath: path] })
    }

    /// A user of this machine. That it exists is checked when it is looked up.
    static func user(_ name: String, _ path: any Path<String>, _ summary: String) -> Key {
        Key(
            name: name, expected: "the name or number of a user, or nothing", summary: summary,
            store: { text, settings in
                let isName = text.utf8.allSatisfy {
                    (UInt8(ascii: "!")...UInt8(ascii: "~")).contains($0) && $0 != UInt8(ascii: ":")
                        && $0 != UInt8(ascii: "/")
                }
                guard isName, text.utf8.count <= 256, !text.hasPrefix("-") else { return false }
                settings[keyPath: path] = text
                return true
            },
            show: { $0[keyPath: path] })
    }

    static func permissions(_ name: String, _ path: any Path<UInt32>, _ summary: String) -> Key {
        Key(
            name: name, expected: "permission bits in octal, such as 0660", summary: summary,
            store: { text, settings in
                guard let value = UInt32(text, radix: 8), value <= 0o777 else { return false }
                settings[keyPath: path] = value
                return true
            },
            show: { "0" + String($0[keyPath: path], radix: 8) })
    }

    static func choice<Value: RawRepresentable<String> & CaseIterable & Sendable>(
        _ name: String, _ path: any Path<Value>, _ summary: String
    ) -> Key {
        Key(
            name: name, expected: "one of " + Value.allCases.map(\.rawValue).joined(separator: ", "),
            summary: summary,
            store: { text, settings in
                guard let value = Value(rawValue: text) else { return false }
                settings[keyPath: path] = value
                return true
            },
            show: { $0[keyPath: path].rawValue })
    }
}
