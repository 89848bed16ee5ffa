import Logging
import NIOConcurrencyHelpers
import NIOCore
import NIOSSL

/// The certificate in use. Its files are looked at again, at most once a second, when a peer connects, so
/// that a renewed one needs no restart.
final class CertificateStore: Sendable {
    private struct State {
        var inUse: NIOSSLContextConfigurationOverride
        var stamps: [FileStamp]
        var lookedAt: ContinuousClock.Instant
        /// Why the files of now cannot be used.
        var problem: String?
    }

    private let files: GatewayConfiguration.TLSFiles
    private let logger: Logger
    private let state: NIOLockedValueBox<State>

    /// - Throws: if a file cannot be read, or the key does not belong to the certificate.
    init(_ files: GatewayConfiguration.TLSFiles, _ logger: Logger) throws {
        self.files = files
        self.logger = logger
        // Before they are read: a change during that is found by the next look.
        let stamps = Self.stamps(of: files)
        state = NIOLockedValueBox(
            State(inUse: try Self.read(files), stamps: stamps, lookedAt: .now))
    }

    /// For the server.
    var tlsConfiguration: TLSConfiguration {
        var tls = Self.configuration(state.withLockedValue { $0.inUse })
        tls.sslContextCallback = { [self] _, promise in promise.succeed(current()) }
        return tls
    }

    private func current() -> NIOSSLContextConfigurationOverride {
        state.withLockedValue { state in
            let now = ContinuousClock.now
            guard now >= state.lookedAt + .seconds(1) else { return state.inUse }
            state.lookedAt = now
            let stamps = Self.stamps(of: files)
            guard stamps != state.stamps else { return state.inUse }
            do {
                state.inUse = try Self.read(files)
                state.stamps = stamps
                state.problem = nil
                logger.notice("the certificate was read again")
            } catch {
                // It may be half renewed, or not readable yet: the next look tries again.
                let problem = "\(error)"
                if problem != state.problem { logger.error("the certificate before is used: \(problem)") }
                state.problem = problem
            }
            return state.inUse
        }
    }

    private static func stamps(of files: GatewayConfiguration.TLSFiles) -> [FileStamp] {
        [FileStamp(files.chain), FileStamp(files.key)]
    }

    private static func read(
        _ files: GatewayConfiguration.TLSFiles
    ) throws -> NIOSSLContextConfigurationOverride {
        var new = NIOSSLContextConfigurationOverride()
        new.certificateChain = try NIOSSLCertificate.fromPEMFile(files.chain).map { .certificate($0) }
        new.privateKey = .privateKey(try NIOSSLPrivateKey(file: files.key, format: .pem))
        // Fails if they do not belong together.
        _ = try NIOSSLContext(configuration: configuration(new))
        return new
    }

    private static func configuration(_ certificate: NIOSSLContextConfigurationOverride) -> TLSConfiguration {
        guard let chain = certificate.certificateChain, let key = certificate.privateKey else {
            preconditionFailure("both are read")
        }
        var tls = TLSConfiguration.makeServerConfiguration(certificateChain: chain, privateKey: key)
        tls.minimumTLSVersion = .tlsv12
        tls.applicationProtocols = ["http/1.1"]
        return tls
    }
}
