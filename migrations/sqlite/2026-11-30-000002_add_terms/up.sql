-- The fencing token. It is never reset: the leader row outlives every leader.
ALTER TABLE gemstone_election_leader ADD COLUMN term BIGINT NOT NULL DEFAULT 0;

-- Who led when. Written only in the transaction that changes leadership.
CREATE TABLE IF NOT EXISTS gemstone_election_tenure (
    ns VARCHAR(255) NOT NULL,
    term BIGINT NOT NULL,
    leader_id VARCHAR(36) NOT NULL,
    began_at DATETIME NOT NULL,
    ended_at DATETIME,
    ended_by VARCHAR(16),
    PRIMARY KEY (ns, term)
);
