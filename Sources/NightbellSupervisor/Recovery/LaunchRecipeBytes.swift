import Keeper
import Launching

extension LaunchRecipe.Own {
    private static let version: UInt8 = 2
    private static let versionWithDifferences: UInt8 = 3

    var bytes: [UInt8] {
        let differs = differences != LaunchDifferences()
        var writer = RecordWriter(version: differs ? Self.versionWithDifferences : Self.version)
        writer.write(output ?? "")
        writer.write(count: arguments.count)
        for argument in arguments { writer.write(argument) }
        if differs { writer.write(differences) }
        return writer.bytes
    }

    init(_ key: RecordKey, _ record: [UInt8]) throws(RecordError) {
        let differs = record.first == Self.versionWithDifferences
        var reader = try RecordReader(
            key, record, version: differs ? Self.versionWithDifferences : Self.version)
        let output: String = try reader.read()
        self.output = output.isEmpty ? nil : output
        let count = try reader.readCount()
        arguments = []
        for _ in 0..<count { arguments.append(try reader.read()) }
        if differs { differences = try reader.readDifferences() }
        try reader.end()
    }
}

extension LaunchSetting {
    private static let version: UInt8 = 2

    static func bytes(of content: Content) -> [UInt8] {
        var writer = RecordWriter(version: version)
        writer.write(content.isRecorded)
        writer.write(content.program)
        writer.write(content.directory)
        writer.write(count: content.environment.count)
        for (name, value) in content.environment.sorted(by: { $0.key < $1.key }) {
            writer.write(name)
            writer.write(value)
        }
        writer.write(content.limits)
        writer.write(content.fileModeMask)
        writer.write(content.identity != nil)
        if let identity = content.identity { writer.write(identity) }
        return writer.bytes
    }

    static func decode(_ bytes: [UInt8], _ key: RecordKey) throws(RecordError) -> Content {
        var reader = try RecordReader(key, bytes, version: version)
        var content = Content(
            isRecorded: try reader.read(), program: try reader.read(), directory: try reader.read(),
            environment: [:], limits: [], fileModeMask: 0)
        let variables = try reader.readCount()
        for _ in 0..<variables {
            let name: String = try reader.read()
            content.environment[name] = try reader.read()
        }
        content.limits = try reader.readLimits()
        content.fileModeMask = try reader.read()
        if try reader.read() { content.identity = try reader.readIdentity() }
        try reader.end()
        return content
    }
}

extension LaunchDifferences {
    /// Their size in a record.
    var byteCount: Int {
        var writer = RecordWriter(version: 0)
        writer.write(self)
        return writer.bytes.count
    }
}

extension RecordWriter {
    fileprivate mutating func write(_ differences: LaunchDifferences) {
        write(differences.directory ?? "")
        write(differences.identity != nil)
        if let identity = differences.identity { write(identity) }
        write(count: differences.environment.count)
        for (name, value) in differences.environment.sorted(by: { $0.key < $1.key }) {
            write(name)
            write(value != nil)
            if let value { write(value) }
        }
    }

    fileprivate mutating func write(_ limits: [ResourceLimit]) {
        write(UInt8(clamping: limits.count))
        for limit in limits {
            write(UInt8(clamping: limit.resource.rawValue))
            write(limit.soft)
            write(limit.hard)
        }
    }

    fileprivate mutating func write(_ identity: ProcessIdentity) {
        write(identity.user)
        write(identity.group)
        write(count: identity.otherGroups.count)
        for group in identity.otherGroups { write(group) }
    }
}

extension RecordReader {
    fileprivate mutating func readDifferences() throws(RecordError) -> LaunchDifferences {
        var differences = LaunchDifferences()
        let directory: String = try read()
        differences.directory = directory.isEmpty ? nil : directory
        if try read() { differences.identity = try readIdentity() }
        let count = try readCount()
        for _ in 0..<count {
            let name: String = try read()
            differences.environment.updateValue(try read() ? try read() as String : nil, forKey: name)
        }
        return differences
    }

    fileprivate mutating func readLimits() throws(RecordError) -> [ResourceLimit] {
        let count: UInt8 = try read()
        var limits: [ResourceLimit] = []
        for _ in 0..<count {
            let number: UInt8 = try read()
            guard let resource = ResourceLimit.Resource(rawValue: UInt32(number)) else {
                throw problem("has an unknown limit")
            }
            limits.append(ResourceLimit(resource, soft: try read(), hard: try read()))
        }
        return limits
    }

    fileprivate mutating func readIdentity() throws(RecordError) -> ProcessIdentity {
        var identity = ProcessIdentity(user: try read(), group: try read(), otherGroups: [])
        let count = try readCount()
        for _ in 0..<count { identity.otherGroups.append(try read()) }
        return identity
    }
}
