-- Instants are UTC text of one shape, 'YYYY-MM-DD HH:MM:SS.ffffff', so that
-- their order as text is their order in time.
CREATE TABLE IF NOT EXISTS gemstone_election_candidate (
    ns VARCHAR(255) NOT NULL,
    candidate_id VARCHAR(36) NOT NULL,
    last_heartbeat_at DATETIME NOT NULL,
    expires_at DATETIME NOT NULL,
    PRIMARY KEY (ns, candidate_id)
);
CREATE TABLE IF NOT EXISTS gemstone_election_leader (
    ns VARCHAR(255) NOT NULL,
    leader_id VARCHAR(36),
    lease_expires_at DATETIME,
    updated_at DATETIME NOT NULL,
    PRIMARY KEY (ns)
);
