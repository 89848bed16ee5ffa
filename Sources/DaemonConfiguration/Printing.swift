extension LoadedConfiguration {
    /// All keys with their values and origins as a configuration file: the output of `--print-configuration`,
    /// which `nightbelld --config` can read.
    package var printed: String {
        var result = "# " + (file.map { "read \($0)" } ?? "no configuration file was read") + "\n"
        var section = ""
        for key in Keys.all {
            let parts = key.name.split(separator: ".").map(String.init)
            if parts.count == 2, parts[0] != section {
                section = parts[0]
                result += "\(section):\n"
            }
            let indentation = parts.count == 2 ? "    " : ""
            let value = quoted(key.value(in: settings))
            result +=
                "\(indentation)\(parts[parts.count - 1]): \(value)  # \(origins[key.name] ?? "defaults")\n"
        }
        return result
    }

    /// Quotes text that YAML would not read as a plain string.
    private func quoted(_ text: String) -> String {
        let plain = text.utf8.allSatisfy { byte in
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "/"), UInt8(ascii: "."),
                UInt8(ascii: "_"),
                UInt8(ascii: "-"):
                true
            default: false
            }
        }
        if plain && !text.isEmpty { return text }
        return "'" + text.split(separator: "'", omittingEmptySubsequences: false).joined(separator: "''")
            + "'"
    }
}
